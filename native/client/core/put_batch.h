// put: reserve, write to every replica's node, commit.
//
//   put_start ─► (segments) ─► one write a node, nodes in parallel ─► put_end ─► answers
//
// in rounds: what another client is just putting (-703) is asked for again after a delay, until it exists or
// may be put; what found no range, a stale grant or a dead peer is put once more, without that segment. A put
// that cannot be finished is revoked in the background. Only put_end's OK makes a value "stored".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/core/operation.h"
#include "wire/value_header.h"

namespace mooncake::client {

struct PutItem {
    std::string_view key;
    std::uint64_t size = 0;
    std::uint64_t parent_digest = 0;   // wire::key_digest of the block before it; 0 = none
    std::uint32_t value_checksum = 0;  // crc32c(0, value), if the batch has checksums
    std::string_view user_metadata;
};

inline constexpr std::uint64_t kRoundValueBytesMax = 256u << 20;  // values granted at once
inline constexpr std::uint64_t kOutcomeDelayMinMs = 1;            // asking again after -703; doubles to
inline constexpr std::uint64_t kOutcomeDelayMaxMs = 200;

class PutBatch final : public Operation {
  public:
    struct Options {
        wire::PutOptions placement;
        std::vector<std::string> preferred;  // segments' names
        bool checksums = true;
    };
    // `items` must stay valid until done().
    PutBatch(Cluster& cluster, std::uint64_t deadline_ms, std::span<const PutItem> items, Options options);

    // OK: stored; OBJECT_ALREADY_EXISTS: a value is visible; else why not.
    const std::vector<wire::Status>& statuses() const { return statuses_; }

    bool on_write_answer(Ticket ticket, const wire::FrameHeader& header, wire::Bytes body,
                         std::uint64_t now_ms, Actions& actions) override;
    void on_write_failed(Ticket ticket, Failure failure, std::string_view why, std::uint64_t now_ms,
                         Actions& actions) override;

  private:
    // By then the master has evicted all that may go from a segment of 255 such values.
    static constexpr std::uint8_t kNoRangesMax = 8;
    enum class Step : std::uint8_t { kQueued, kWaiting, kInRound, kAnswered };
    struct Entry {
        Step step = Step::kQueued;
        std::uint8_t outcome_asks = 0;  // answered -703 or BUSY so often
        std::uint8_t no_ranges = 0;
        bool retried_grant = false;
        bool retried_peer = false;
        wire::Status waits_on = wire::Status::kOk;  // kWaiting: why,
        std::uint64_t again_at_ms = 0;              // and until when
    };
    // One granted value of this round; its results are results_[first .. first + count).
    struct Grant {
        std::uint32_t index = 0;
        std::uint32_t first = 0;
        std::uint32_t count = 0;
        wire::PutId put_id = 0;
    };
    struct PeerPlan {
        PeerId peer = kNoPeer;
        std::uint64_t bytes = 0;
        std::vector<std::pair<std::uint32_t, std::uint32_t>> slots;  // (grant, result)
    };

    void begin(std::uint64_t now_ms, Actions& actions) override;
    bool on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) override;
    void on_refused(wire::Status status, std::uint64_t now_ms, Actions& actions) override;
    void on_wake(std::uint64_t now_ms, Actions& actions) override;
    void answer_rest(wire::Status status) override;

    wire::Status invalid(const PutItem& item) const;
    void next_round(std::uint64_t now_ms, Actions& actions);
    void collect_round(std::uint64_t now_ms);
    void ask_put_start(Actions& actions);
    bool on_grants(wire::Bytes body, std::uint64_t now_ms, Actions& actions);
    void settle_ungranted(std::uint32_t index, wire::Status status, std::uint64_t now_ms);
    void start_writes(Actions& actions);
    void emit_writes(const PeerPlan& plan, Actions& actions);
    void encode_write(const PeerPlan& plan, std::size_t first, std::size_t last, NodeWrite& write);
    wire::ValueHeader value_header(const Grant& grant) const;
    void writes_done(Actions& actions);
    void write_over(std::uint64_t now_ms, Actions& actions);
    bool on_committed(wire::Bytes body, std::uint64_t now_ms, Actions& actions);
    void settle(const Grant& grant, wire::Status status, std::uint64_t now_ms);
    bool try_again(const Grant& grant, wire::Status status, std::uint64_t now_ms);
    void answer(std::uint32_t index, wire::Status status);

    std::span<const PutItem> items_;
    Options options_;
    std::vector<wire::Status> statuses_;
    std::vector<Entry> entries_;

    // The round under way.
    std::vector<std::uint32_t> round_;  // keys, as asked
    std::vector<Grant> grants_;
    std::vector<wire::ReplicaPlace> places_;    // one a result
    std::vector<wire::ReplicaResult> results_;  // of all grants
    std::vector<wire::SegmentId> asked_segments_;
    std::vector<std::vector<std::uint32_t>> write_slots_;  // by ticket: the results it decides
    std::size_t open_writes_ = 0;
    std::size_t queued_count_ = 0;
    std::size_t waiting_count_ = 0;
    std::size_t avoided_count_ = 0;  // segments that the last put_start left out
    std::size_t scan_from_ = 0;      // no queued key below it
};

}  // namespace mooncake::client
