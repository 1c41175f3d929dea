#include "client/core/cluster.h"

#include <algorithm>

#include "wire/control.h"
#include "wire/digest.h"

namespace mooncake::client {

namespace {

constexpr std::string_view kTcpScheme = "tcp://";
constexpr std::string_view kSharedMemoryScheme = "shm://";

// The first endpoint of this kind; empty: none.
std::string_view endpoint_of(const wire::SegmentDescription& description, std::string_view scheme) {
    for (const auto endpoint : description.endpoints) {
        if (endpoint.starts_with(scheme)) return endpoint;
    }
    return {};
}

// What the master is told of it.
wire::PeerFailure told(Failure failure) {
    switch (failure) {
        case Failure::kRefused:
            return wire::PeerFailure::kRefused;
        case Failure::kBroken:
            return wire::PeerFailure::kReset;
        case Failure::kDial:
        case Failure::kDeadline:
        case Failure::kStalled:
            return wire::PeerFailure::kTimedOut;
        case Failure::kMalformed:
        case Failure::kNotSent:
            break;
    }
    return wire::PeerFailure::kUnknown;
}

}  // namespace

ClusterState::ClusterState(std::string tenant, std::string host_id, std::uint64_t seed,
                           std::size_t location_cache_max)
    : tenant_(std::move(tenant)),
      host_id_(std::move(host_id)),
      random_state_(seed),
      locations_(location_cache_max) {}

Stamp ClusterState::stamp(bool mutating) {
    return {session_.session, mutating ? ++sequence_ : 0, session_.epoch};
}

void ClusterState::avoid(std::vector<wire::SegmentId>& segments) {
    std::vector<wire::PeerFailure> failures;
    unreachable(segments, failures);
}

void ClusterState::unreachable(std::vector<wire::SegmentId>& segments,
                               std::vector<wire::PeerFailure>& failures) const {
    if (unreachable_ == 0) return;
    for (const auto& [id, segment] : segments_) {
        if (segments.size() >= wire::kAvoidMax) return;
        if (segment.peer == kNoPeer) continue;
        const auto& peer = peers_.at(segment.peer);
        if (peer.reachable) continue;
        segments.push_back(id);
        failures.push_back(told(peer.failure));
    }
}

Route ClusterState::route(wire::SegmentId segment) {
    const auto found = segments_.find(segment);
    if (found == segments_.end()) return {};
    const auto [peer, same_host] = found->second;
    if (peer == kNoPeer) return {Route::Kind::kAbsent, false, kNoPeer};
    const Peer& known = peers_.at(peer);
    const auto kind = known.reachable ? Route::Kind::kReachable : Route::Kind::kUnreachable;
    return {kind, same_host, peer, known.is_mapped};
}

// ---- where segments lie

void ClusterState::learn(std::span<const wire::SegmentId> asked, std::span<const wire::SegmentInfo> infos) {
    struct Place {
        std::string_view endpoint;
        std::string_view local_endpoint;
        bool same_host = false;
    };
    std::unordered_map<wire::SegmentId, Place> present;
    std::size_t unknown = 0;
    for (const auto& info : infos) {
        const auto endpoint = endpoint_of(info.description, kTcpScheme);
        if (!wire::ok(info.status) || endpoint.empty()) continue;
        const bool same_host = !host_id_.empty() && info.description.host_id == host_id_;
        present[info.segment] = {endpoint, endpoint_of(info.description, kSharedMemoryScheme), same_host};
        if (!segments_.contains(info.segment)) ++unknown;
    }
    for (const auto id : asked) {
        if (!present.contains(id) && !segments_.contains(id)) ++unknown;
    }
    if (segments_.size() + unknown > kSegmentsKnownMax) {
        segments_.clear();
        while (!peers_.empty()) forget(peers_.begin()->first);
    }
    // What is gone first: a segment that is then the only one at its endpoint lies at a process that started
    // since. What its predecessor there did not answer is none of its fault.
    for (const auto id : asked) {
        if (!present.contains(id)) assign(id, Segment{});
    }
    for (const auto& info : infos) {
        if (!present.contains(info.segment)) assign(info.segment, Segment{});
    }
    for (const auto& [id, place] : present) {
        const auto peer = intern(place.endpoint);
        peers_.at(peer).local_endpoint = place.local_endpoint;
        assign(id, {peer, place.same_host});
    }
}

PeerId ClusterState::intern(std::string_view endpoint) {
    const auto [found, is_new] = peer_ids_.try_emplace(std::string(endpoint), last_peer_ + 1);
    if (is_new) peers_[++last_peer_].endpoint = endpoint;
    return found->second;
}

void ClusterState::assign(wire::SegmentId id, Segment to) {
    const auto [found, is_new] = segments_.try_emplace(id);
    const PeerId before = found->second.peer;
    found->second = to;
    if (before == to.peer) return;
    if (to.peer != kNoPeer) {
        Peer& peer = peers_.at(to.peer);
        ++peer.segments;
        // Most likely a process that started where another one died: no need to wait for long.
        if (!peer.reachable) peer.probe_at_ms = 0;
    }
    if (before != kNoPeer && --peers_.at(before).segments == 0) forget(before);
}

void ClusterState::forget(PeerId id) {
    const auto found = peers_.find(id);
    set_reachable(found->second, true);
    if (found->second.probing) --probing_;
    peer_ids_.erase(found->second.endpoint);
    peers_.erase(found);
}

std::string ClusterState::peer_endpoint(PeerId id) const {
    const auto found = peers_.find(id);
    return found == peers_.end() ? std::string() : found->second.endpoint;
}

std::string ClusterState::peer_local_endpoint(PeerId id) const {
    const auto found = peers_.find(id);
    return found == peers_.end() ? std::string() : found->second.local_endpoint;
}

void ClusterState::set_mapped(PeerId id, bool is_mapped) {
    const auto found = peers_.find(id);
    if (found != peers_.end()) found->second.is_mapped = is_mapped;
}

std::vector<wire::SegmentId> ClusterState::segments_to_check(std::uint64_t now_ms) {
    std::vector<wire::SegmentId> ids;
    const bool is_all = now_ms >= check_at_ms_;
    if (!is_all && !check_silent_) return ids;
    if (is_all) {
        check_at_ms_ = now_ms + kSegmentsCheckMs;
        // Known as absent for so long that no call which asked is still under way.
        std::erase_if(segments_, [](const auto& entry) { return entry.second.peer == kNoPeer; });
    }
    check_silent_ = false;
    for (const auto& [id, segment] : segments_) {
        if (segment.peer == kNoPeer) continue;
        if (is_all || peers_.at(segment.peer).is_to_check) ids.push_back(id);
    }
    for (auto& [id, peer] : peers_) peer.is_to_check = false;
    return ids;
}

// ---- who answers

void ClusterState::set_reachable(Peer& peer, bool reachable) {
    if (peer.reachable == reachable) return;
    peer.reachable = reachable;
    if (reachable) {
        --unreachable_;
    } else {
        ++unreachable_;
    }
}

void ClusterState::delay_probe(Peer& peer, std::uint64_t now_ms) {
    peer.probe_at_ms = now_ms + peer.probe_delay_ms;
    peer.probe_delay_ms = std::min(peer.probe_delay_ms * 2, kProbeDelayMaxMs);
}

void ClusterState::peer_answered(PeerId id) {
    const auto found = peers_.find(id);
    if (found == peers_.end()) return;
    Peer& peer = found->second;
    set_reachable(peer, true);
    peer.failures = 0;
    peer.probe_delay_ms = kProbeDelayMinMs;
}

void ClusterState::peer_failed(PeerId id, Failure failure, std::uint64_t now_ms) {
    const auto found = peers_.find(id);
    if (found == peers_.end() || failure == Failure::kNotSent) return;
    Peer& peer = found->second;
    ++peer.failures;
    peer.failure = failure;
    // A dial is an attempt of its own, made after whatever broke before it; a stall lasted long enough.
    const bool is_proof =
        failure == Failure::kDial || failure == Failure::kRefused || failure == Failure::kStalled;
    if (!peer.reachable || (!is_proof && peer.failures < kPeerFailuresMax)) return;
    set_reachable(peer, false);
    delay_probe(peer, now_ms);
}

std::vector<PeerId> ClusterState::probes_due(std::uint64_t now_ms) {
    std::vector<std::pair<std::uint64_t, PeerId>> waiting;
    if (unreachable_ == 0 || probing_ >= kProbesMax) return {};
    for (const auto& [id, peer] : peers_) {
        if (!peer.reachable && !peer.probing && now_ms >= peer.probe_at_ms)
            waiting.emplace_back(peer.probe_at_ms, id);
    }
    std::sort(waiting.begin(), waiting.end());
    waiting.resize(std::min(waiting.size(), kProbesMax - probing_));
    std::vector<PeerId> due;
    for (const auto& [when, id] : waiting) {
        peers_.at(id).probing = true;
        ++probing_;
        due.push_back(id);
    }
    return due;
}

void ClusterState::probe_answered(PeerId id) {
    const auto found = peers_.find(id);
    if (found == peers_.end() || !found->second.probing) return;
    found->second.probing = false;
    --probing_;
    found->second.failures = 0;
    set_reachable(found->second, true);
}

void ClusterState::probe_failed(PeerId id, Failure failure, std::uint64_t now_ms) {
    const auto found = peers_.find(id);
    if (found == peers_.end() || !found->second.probing) return;
    Peer& peer = found->second;
    peer.probing = false;
    --probing_;
    delay_probe(peer, now_ms);
    // A request was answered meanwhile: that says more.
    if (peer.reachable) return;
    peer.failure = failure;
    peer.is_to_check = check_silent_ = true;
}

std::uint64_t ClusterState::next_probe_ms() const {
    std::uint64_t next = ~std::uint64_t{0};
    if (unreachable_ == 0 || probing_ >= kProbesMax) return next;
    for (const auto& [id, peer] : peers_) {
        if (!peer.reachable && !peer.probing) next = std::min(next, peer.probe_at_ms);
    }
    return next;
}

// ---- where values were found

bool ClusterState::recall(std::string_view key, LocationStamp now, Location& into) {
    return locations_.is_on() && locations_.recall(key, wire::key_digest(tenant_, key), now.ms, into);
}

void ClusterState::remember(std::string_view key, const Location& location, LocationStamp asked,
                            std::uint64_t ttl_ms) {
    if (locations_.is_on()) locations_.remember(key, wire::key_digest(tenant_, key), location, asked, ttl_ms);
}

void ClusterState::recalled_was_read(std::string_view key, std::uint64_t now_ms) {
    locations_.accessed(key, wire::key_digest(tenant_, key), now_ms);
}

void ClusterState::recalled_was_stale(std::string_view key) {
    locations_.forget(key, wire::key_digest(tenant_, key));
    locations_.went_stale();
}

void ClusterState::bar(std::span<const std::string_view> keys, std::uint64_t now_ms) {
    if (!locations_.is_on()) return;
    for (const auto key : keys) locations_.bar(key, wire::key_digest(tenant_, key), now_ms);
}

// ---- what is to be told

void ClusterState::release(std::span<const std::string_view> keys, std::uint64_t now_ms) {
    if (keys.empty()) return;
    if (release_lengths_.empty()) releases_since_ms_ = now_ms;
    ++releases_;
    for (const auto key : keys) {
        if (release_lengths_.size() >= kReleasesMax) return;
        if (release_bytes_.size() + key.size() > kReleaseBytesMax) return;
        release_lengths_.push_back(static_cast<std::uint16_t>(key.size()));
        release_bytes_.append(key);
    }
}

void ClusterState::revoke(std::span<const wire::PutId> put_ids) {
    const auto room = kRevokesMax - revokes_.size();
    const auto taken = put_ids.first(std::min(room, put_ids.size()));
    revokes_.insert(revokes_.end(), taken.begin(), taken.end());
}

ClusterState::Releases ClusterState::take_releases() {
    Releases taken{std::move(release_lengths_), std::move(release_bytes_)};
    release_lengths_.clear();
    release_bytes_.clear();
    releases_hurry_ = false;
    releases_taken_ = releases_;
    return taken;
}

std::uint64_t ClusterState::releases_due_ms() const {
    if (release_lengths_.empty()) return ~std::uint64_t{0};
    return releases_hurry_ ? 0 : releases_since_ms_ + kReleaseDelayMs;
}

std::uint64_t ClusterState::hurry_releases() {
    releases_hurry_ = has_releases();
    return releases_;
}

std::vector<wire::PutId> ClusterState::take_revokes() {
    std::vector<wire::PutId> taken = std::move(revokes_);
    revokes_.clear();
    return taken;
}

std::uint64_t ClusterState::random() { return wire::mix64(random_state_ += 0x9E3779B97F4A7C15ULL); }

void ClusterState::session_opened(const wire::OpenSessionReply& session) {
    // The numbers go on: of two masters by mistake, the older one gives the old session again, and would
    // answer a number for the second time with what it answered the first time. A master of another reign
    // gave other ids: what the table says of the old ones stays true, they are gone, and soon forgotten.
    if (session.epoch != session_.epoch) check_at_ms_ = 0;
    // Who promised how long a place may be remembered is not the one who answers removes now.
    if (session.session != session_.session || session.epoch != session_.epoch ||
        session.master != session_.master) {
        locations_.forget_all();
    }
    session_ = session;
}

}  // namespace mooncake::client
