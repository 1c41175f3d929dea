#include "client/core/cluster.h"

#include <algorithm>

#include "wire/control.h"

namespace mooncake::client {

namespace {

constexpr std::string_view kTcpScheme = "tcp://";

// The first endpoint that this client has a transport for.
std::string_view usable_endpoint(const wire::SegmentDescription& description) {
    for (const auto endpoint : description.endpoints) {
        if (endpoint.starts_with(kTcpScheme)) return endpoint;
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
            break;
    }
    return wire::PeerFailure::kUnknown;
}

}  // namespace

ClusterState::ClusterState(std::string tenant, std::string host_id, std::uint64_t seed)
    : tenant_(std::move(tenant)), host_id_(std::move(host_id)), random_state_(seed) {}

Stamp ClusterState::stamp(bool mutating) {
    return {session_.session, mutating ? ++sequence_ : 0, session_.epoch};
}

void ClusterState::avoid(std::vector<wire::SegmentId>& segments) {
    std::vector<wire::PeerFailure> failures;
    unreachable(segments, failures);
}

void ClusterState::unreachable(std::vector<wire::SegmentId>& segments,
                               std::vector<wire::PeerFailure>& failures) const {
    if (unreachable_count() == 0) return;
    for (const auto& [id, segment] : segments_) {
        if (segments.size() >= wire::kAvoidMax) return;
        if (segment.peer == kNoPeer || peers_[segment.peer].reachable) continue;
        segments.push_back(id);
        failures.push_back(told(peers_[segment.peer].failure));
    }
}

Route ClusterState::route(wire::SegmentId segment) {
    const auto found = segments_.find(segment);
    if (found == segments_.end()) return {};
    const auto [peer, same_host] = found->second;
    if (peer == kNoPeer) return {Route::Kind::kAbsent, false, kNoPeer};
    const auto kind = peers_[peer].reachable ? Route::Kind::kReachable : Route::Kind::kUnreachable;
    return {kind, same_host, peer};
}

void ClusterState::learn(std::span<const wire::SegmentId> asked, std::span<const wire::SegmentInfo> infos) {
    if (segments_.size() + asked.size() + infos.size() > kSegmentsKnownMax) segments_.clear();
    // The first segment known at a peer is a process that started since: what its predecessor there did not
    // answer is none of its fault, and nobody has probed it, because no segment was known.
    for (const auto& info : infos) {
        const auto endpoint = usable_endpoint(info.description);
        if (!wire::ok(info.status) || endpoint.empty()) continue;
        if (const PeerId peer = intern(endpoint); !holds_segments(peer)) peer_answered(peer);
    }
    for (const auto id : asked) segments_[id] = Segment{};
    for (const auto& info : infos) {
        Segment segment;
        const auto endpoint = usable_endpoint(info.description);
        if (wire::ok(info.status) && !endpoint.empty()) {
            segment.peer = intern(endpoint);
            segment.same_host = !host_id_.empty() && info.description.host_id == host_id_;
        }
        segments_[info.segment] = segment;
    }
}

PeerId ClusterState::intern(std::string_view endpoint) {
    const auto [found, is_new] =
        peer_ids_.try_emplace(std::string(endpoint), static_cast<PeerId>(peers_.size()));
    if (is_new) {
        peers_.emplace_back();
        peers_.back().endpoint = endpoint;
    }
    return found->second;
}

void ClusterState::peer_answered(PeerId id) {
    Peer& peer = peers_[id];
    peer.reachable = true;
    peer.probing = false;
    peer.failures = 0;
    peer.probe_delay_ms = kProbeDelayMinMs;
}

void ClusterState::peer_failed(PeerId id, Failure failure, std::uint64_t now_ms) {
    Peer& peer = peers_[id];
    ++peer.failures;
    peer.failure = failure;
    if (peer.probing) {
        peer.probing = false;
        peer.probe_delay_ms = std::min(peer.probe_delay_ms * 2, kProbeDelayMaxMs);
        peer.probe_at_ms = now_ms + peer.probe_delay_ms;
    }
    // A dial is an attempt of its own, made after whatever broke before it; a stall lasted long enough.
    const bool is_proof =
        failure == Failure::kDial || failure == Failure::kRefused || failure == Failure::kStalled;
    if (!peer.reachable || (!is_proof && peer.failures < kPeerFailuresMax)) return;
    peer.reachable = false;
    peer.probe_at_ms = now_ms + peer.probe_delay_ms;
}

std::size_t ClusterState::unreachable_count() const {
    return static_cast<std::size_t>(
        std::count_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.reachable; }));
}

std::vector<PeerId> ClusterState::probes_due(std::uint64_t now_ms, std::size_t peers_max) {
    std::vector<PeerId> due;
    for (PeerId id = 0; id < peers_.size() && due.size() < peers_max; ++id) {
        Peer& peer = peers_[id];
        if (peer.reachable || peer.probing || now_ms < peer.probe_at_ms) continue;
        // A peer that no known segment lies at is nobody's concern any more.
        if (!holds_segments(id)) continue;
        peer.probing = true;
        due.push_back(id);
    }
    return due;
}

bool ClusterState::holds_segments(PeerId peer) const {
    return std::any_of(segments_.begin(), segments_.end(),
                       [peer](const auto& entry) { return entry.second.peer == peer; });
}

std::vector<wire::SegmentId> ClusterState::segments_of(PeerId peer) const {
    std::vector<wire::SegmentId> ids;
    for (const auto& [id, segment] : segments_) {
        if (segment.peer == peer && ids.size() < wire::kBatchKeysMax) ids.push_back(id);
    }
    return ids;
}

void ClusterState::release(std::span<const std::string_view> keys, std::uint64_t now_ms) {
    if (release_lengths_.empty()) releases_since_ms_ = now_ms;
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
    return taken;
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
    // gave other ids: what the table says of the old ones stays true, they are gone.
    session_ = session;
}

}  // namespace mooncake::client
