// What a client knows about the cluster beyond one operation: its session, which segment lies at which peer,
// which peers answer, and what is to be told to the master in the background (leases that are over, puts
// given up).
//
// Decides; no socket, thread or clock: `now_ms` is an argument, randomness a seed. Operations see the
// Cluster interface; the driver puts a lock round ClusterState, a simulation uses it as it is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/core/location_cache.h"
#include "wire/bytes.h"
#include "wire/ids.h"
#include "wire/lane.h"

namespace mooncake::client {

// A place that serves reads and writes: one node's data endpoint, for as long as a segment is known to lie
// there. Ids are never given again; what is said of a forgotten one is ignored.
using PeerId = std::uint32_t;
inline constexpr PeerId kNoPeer = ~PeerId{0};

struct Route {
    enum class Kind : std::uint8_t {
        kUnknown,      // ask the master (segments)
        kAbsent,       // the master does not know the segment any more, or it has no endpoint we can use
        kUnreachable,  // known; its peer does not answer now
        kReachable,
    };
    Kind kind = Kind::kUnknown;
    bool same_host = false;
    PeerId peer = kNoPeer;
    bool is_mapped = false;  // its memory lies in this process's address space
};

struct Stamp {
    wire::SessionId session = 0;
    std::uint64_t sequence = 0;
    std::uint64_t epoch = 0;
};

// How a request to a peer ended without an answer.
enum class Failure : std::uint8_t {
    kDial,       // no connection could be made in time
    kRefused,    // a dial was refused, or broken off
    kBroken,     // the connection ended first
    kDeadline,   // no answer in time
    kStalled,    // no byte moved for so long that the peer counts as unreachable
    kMalformed,  // an answer that cannot be
    kNotSent     // no connection of ours was free in time, which says nothing about the peer
};

class Cluster {
  public:
    virtual ~Cluster() = default;

    virtual std::string_view tenant() const = 0;

    // The session, and for a request that changes something the next sequence number (else 0).
    virtual Stamp stamp(bool mutating) = 0;
    // Appends the segments at peers that do not answer now, at most kAvoidMax.
    virtual void avoid(std::vector<wire::SegmentId>& segments) = 0;
    virtual Route route(wire::SegmentId segment) = 0;
    // An answer of the master's to a question about `asked`.
    virtual void learn(std::span<const wire::SegmentId> asked, std::span<const wire::SegmentInfo> infos) = 0;

    virtual void peer_answered(PeerId peer) = 0;
    virtual void peer_failed(PeerId peer, Failure failure, std::uint64_t now_ms) = 0;

    // ---- where values were found before (location_cache.h)

    // Now, by the clock of remembered places: one that goes on while the machine sleeps.
    virtual LocationStamp location_stamp(std::uint64_t now_ms) = 0;
    virtual bool recall(std::string_view key, LocationStamp now, Location& into) = 0;
    virtual void remember(std::string_view key, const Location& location, LocationStamp asked,
                          std::uint64_t ttl_ms) = 0;
    // A value that was recalled was read; or it was not there, or could not be read there.
    virtual void recalled_was_read(std::string_view key, std::uint64_t now_ms) = 0;
    virtual void recalled_was_stale(std::string_view key) = 0;
    // This client has changed these keys, or may have.
    virtual void bar(std::span<const std::string_view> keys, std::uint64_t now_ms) = 0;

    // To be told to the master in the background.
    virtual void release(std::span<const std::string_view> keys, std::uint64_t now_ms) = 0;
    virtual void revoke(std::span<const wire::PutId> put_ids) = 0;

    virtual std::uint64_t random() = 0;
};

inline constexpr unsigned kPeerFailuresMax = 2;  // in a row, then the peer counts as unreachable
inline constexpr std::uint64_t kProbeDelayMinMs = 250;
inline constexpr std::uint64_t kProbeDelayMaxMs = 5'000;  // doubles from the first to this
inline constexpr std::size_t kProbesMax = 16;             // under way at once; the others wait their turn
// The master is asked this often whether all known segments still exist, so that nodes that left are
// forgotten.
inline constexpr std::uint64_t kSegmentsCheckMs = 60'000;
inline constexpr std::uint64_t kReleaseDelayMs = 50;
inline constexpr std::size_t kReleasesMax = 65'536;  // beyond it a lease runs out by itself
inline constexpr std::size_t kReleaseBytesMax = 4u << 20;
inline constexpr std::size_t kRevokesMax = 65'536;  // beyond it the master reaps the put by itself
// Beyond it the table is learnt anew. Each known peer has a segment, so it bounds them, too.
inline constexpr std::size_t kSegmentsKnownMax = 65'536;

class ClusterState final : public Cluster {
  public:
    ClusterState(std::string tenant, std::string host_id, std::uint64_t seed,
                 std::size_t location_cache_max = 0);

    std::string_view tenant() const override { return tenant_; }
    Stamp stamp(bool mutating) override;
    void avoid(std::vector<wire::SegmentId>& segments) override;
    Route route(wire::SegmentId segment) override;
    void learn(std::span<const wire::SegmentId> asked, std::span<const wire::SegmentInfo> infos) override;
    void peer_answered(PeerId peer) override;
    void peer_failed(PeerId peer, Failure failure, std::uint64_t now_ms) override;
    LocationStamp location_stamp(std::uint64_t now_ms) override { return locations_.stamp(now_ms); }
    bool recall(std::string_view key, LocationStamp now, Location& into) override;
    void remember(std::string_view key, const Location& location, LocationStamp asked,
                  std::uint64_t ttl_ms) override;
    void recalled_was_read(std::string_view key, std::uint64_t now_ms) override;
    void recalled_was_stale(std::string_view key) override;
    void bar(std::span<const std::string_view> keys, std::uint64_t now_ms) override;
    void release(std::span<const std::string_view> keys, std::uint64_t now_ms) override;
    void revoke(std::span<const wire::PutId> put_ids) override;
    std::uint64_t random() override;

    // What the driver does with it.
    void session_opened(const wire::OpenSessionReply& session);
    const wire::OpenSessionReply& session() const { return session_; }
    LocationCache& locations() { return locations_; }
    const LocationCache& locations() const { return locations_; }

    bool knows(PeerId peer) const { return peers_.contains(peer); }
    std::string peer_endpoint(PeerId peer) const;  // empty: forgotten
    // By which processes of the peer's host map its memory, as it advertises it; empty: it does not.
    std::string peer_local_endpoint(PeerId peer) const;
    void set_mapped(PeerId peer, bool is_mapped);
    std::size_t peer_count() const { return peers_.size(); }
    std::size_t segment_count() const { return segments_.size(); }
    std::size_t unreachable_count() const { return unreachable_; }
    // As avoid(), with how each was found out, for the report to the master.
    void unreachable(std::vector<wire::SegmentId>& segments, std::vector<wire::PeerFailure>& failures) const;

    // Peers to be probed now, those first that wait longest; each is given once until its probe ended.
    std::vector<PeerId> probes_due(std::uint64_t now_ms);
    // It may be asked again; only an answer to a request proves that it is well.
    void probe_answered(PeerId peer);
    void probe_failed(PeerId peer, Failure failure, std::uint64_t now_ms);
    // When probes_due or segments_to_check may have something next.
    std::uint64_t next_probe_ms() const;
    std::uint64_t next_check_ms() const { return check_silent_ ? 0 : check_at_ms_; }
    // Segments to ask the master about: of peers whose probe failed, and all of them now and then. Those that
    // it does not know any more are forgotten by and by, and a peer with its last one.
    std::vector<wire::SegmentId> segments_to_check(std::uint64_t now_ms);

    bool releases_due(std::uint64_t now_ms) const { return now_ms >= releases_due_ms(); }
    std::uint64_t releases_due_ms() const;  // ~0: nothing is released
    bool has_releases() const { return !release_lengths_.empty(); }
    bool has_revokes() const { return !revokes_.empty(); }
    // Keys packed one after another with their lengths; the queue is empty afterwards.
    struct Releases {
        std::vector<std::uint16_t> lengths;
        std::string bytes;
    };
    Releases take_releases();
    std::vector<wire::PutId> take_revokes();

    // For one who is about to ask something that the leases of this client's own reads would refuse: what was
    // released up to now is due at once, and told when is_told() says so of the answer.
    std::uint64_t hurry_releases();
    bool is_told(std::uint64_t releases) const { return releases_told_ >= releases; }
    // The master has answered what take_releases() gave last, or nobody will tell it any more.
    void releases_told() { releases_told_ = releases_taken_; }

  private:
    struct Peer {
        std::string endpoint;
        std::string local_endpoint;
        bool is_mapped = false;
        std::size_t segments = 0;  // that lie there
        bool reachable = true;
        bool probing = false;
        bool is_to_check = false;                         // its probe failed: does it still exist?
        unsigned failures = 0;                            // in a row
        Failure failure = Failure::kDial;                 // the last
        std::uint64_t probe_delay_ms = kProbeDelayMinMs;  // of the next probe
        std::uint64_t probe_at_ms = 0;
    };
    struct Segment {
        PeerId peer = kNoPeer;  // kNoPeer: absent
        bool same_host = false;
    };

    PeerId intern(std::string_view endpoint);
    void assign(wire::SegmentId id, Segment to);
    void forget(PeerId peer);
    void set_reachable(Peer& peer, bool reachable);
    static void delay_probe(Peer& peer, std::uint64_t now_ms);

    std::string tenant_;
    std::string host_id_;
    std::uint64_t random_state_;
    wire::OpenSessionReply session_{};
    std::uint64_t sequence_ = 0;
    std::unordered_map<PeerId, Peer> peers_;
    std::unordered_map<std::string, PeerId> peer_ids_;
    PeerId last_peer_ = 0;
    std::size_t unreachable_ = 0;
    std::size_t probing_ = 0;
    std::unordered_map<wire::SegmentId, Segment> segments_;
    std::uint64_t check_at_ms_ = 0;
    bool check_silent_ = false;  // some peer is_to_check
    std::vector<std::uint16_t> release_lengths_;
    std::string release_bytes_;
    std::uint64_t releases_since_ms_ = 0;
    bool releases_hurry_ = false;
    std::uint64_t releases_ = 0;  // calls of release(), and how many of them were taken and told
    std::uint64_t releases_taken_ = 0;
    std::uint64_t releases_told_ = 0;
    std::vector<wire::PutId> revokes_;
    LocationCache locations_;
};

}  // namespace mooncake::client
