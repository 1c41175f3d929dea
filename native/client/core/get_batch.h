// get: where the values are, from which replica to read each, and what to do when a replica does not give
// it.
//
//   lookup ─► (segments) ─► one read a peer ─► every key whole, or its next replica ─► ... ─► answers
//
// A replica that is gone, does not answer, or whose bytes do not match their checksum is left for the next
// one. All gone: the master is asked once more (the value may have moved), then it is a miss. Bytes that do
// not match on any replica are an error, never an answer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/core/operation.h"

namespace mooncake::client {

struct GetResult {
    wire::Status status = wire::Status::kDeadline;
    std::uint64_t length = 0;  // with OK and BUFFER_OVERFLOW: the value's size
    wire::PutId put_id = 0;
};

// A part of a value.
struct ValueRange {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};

// A value that is gone from everywhere it was said to be is looked up again: it may have moved. While it is
// told elsewhere each time, up to so often.
inline constexpr std::uint8_t kLookupsMax = 8;
// A longer call pays its lookup once for all its keys: 0.25 us a key, less than remembering each costs (0.4
// us).
inline constexpr std::size_t kRecalledKeysMax = 64;
inline constexpr std::uint64_t kBusyDelayMinMs = 5;  // asking a busy node again; doubles to
inline constexpr std::uint64_t kBusyDelayMaxMs = 200;

class GetBatch final : public Operation {
  public:
    struct Options {
        bool checksums = true;
        bool user_metadata = false;
        // Instead of whole values: one a key, which may be named several times. Each is the whole target.
        // Those of one key may be of different values, as their put_ids tell. INVALID_PARAMS: it is not
        // inside the value. VALUE_TOO_LARGE: with checksums, more than a node looks at for a part.
        std::span<const ValueRange> ranges = {};
        bool whole = false;  // no value is cut into parts
        // What is read may be read where it was found before. Not for who only asks what there is, and not in
        // calls of more than kRecalledKeysMax keys.
        bool may_recall = true;
    };
    // `keys` must stay valid as long as this does.
    GetBatch(Cluster& cluster, std::uint64_t deadline_ms, std::span<const std::string_view> keys,
             Options options);

    // Room for each value, before start(): it reads at once. Without: it is done() after the lookup,
    // results() have the sizes, and read() goes on. A capacity of kNotWanted leaves that key out.
    static constexpr std::uint64_t kNotWanted = ~std::uint64_t{0};
    void set_capacities(std::vector<std::uint64_t> capacities);
    void read(std::uint64_t deadline_ms, std::uint64_t now_ms, Actions& actions);
    // Instead of read(): what was located is answered so.
    void refuse_reading(wire::Status status) { answer_rest(status); }
    // Tells the master that this reader needs nothing more; after done().
    void release_leases(std::uint64_t now_ms);

    const std::vector<GetResult>& results() const { return results_; }
    // One a key if they were asked for, else empty.
    const std::vector<std::string>& user_metadata() const { return user_metadata_; }

    void on_read_done(Ticket ticket, std::span<PartAnswer> answers, std::uint64_t now_ms,
                      Actions& actions) override;
    void on_read_failed(Ticket ticket, std::span<PartAnswer> answers, Failure failure, std::string_view why,
                        std::uint64_t now_ms, Actions& actions) override;

  private:
    enum class Step : std::uint8_t { kToLookUp, kLocated, kReading, kWaiting, kAnswered };
    struct Entry {
        Step step = Step::kToLookUp;
        std::uint8_t place_count = 0;
        std::uint8_t tried = 0;  // a bit a place
        std::uint8_t leases = 0;
        std::uint8_t lookups = 0;
        bool told_the_same = false;  // the last one told what the one before had
        bool saw_gone = false;
        bool saw_busy = false;
        bool is_recalled = false;  // by places that no lookup of this call told
        bool has_checksum = false;
        std::uint8_t open_parts = 0;
        wire::Status error = wire::Status::kOk;  // why the last replica did not do
        std::uint32_t first_place = 0;
        std::uint32_t checksum = 0;           // as its writer computed it
        std::uint32_t received_checksum = 0;  // of what came, if it came in one part
        std::uint64_t offset_next = 0;        // of a value in several parts: planned up to here
    };
    static_assert(wire::kReplicasMax <= 8, "Entry::tried has a bit a replica");
    struct Stripe {
        std::uint32_t index = 0;
        std::uint32_t checksum = 0;
        std::uint64_t offset = 0;
        std::uint64_t length = 0;
    };
    struct PeerPlan {
        PeerId peer = kNoPeer;
        std::uint64_t bytes = 0;
        bool has_alternatives = true;  // each of its values could be read elsewhere
        bool is_mapped = false;        // one copy from there is as fast as two
        std::vector<std::pair<std::uint32_t, wire::ReplicaId>> values;
    };

    void begin(std::uint64_t now_ms, Actions& actions) override;
    bool on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) override;
    void on_refused(wire::Status status, std::uint64_t now_ms, Actions& actions) override;
    void on_wake(std::uint64_t now_ms, Actions& actions) override;
    void answer_rest(wire::Status status) override;

    void go_on(std::uint64_t now_ms, Actions& actions);  // whatever comes next
    void recall(std::uint32_t index, LocationStamp now);
    void remember(std::uint32_t index, const wire::LookupRecord& record);
    void tell_accesses(std::uint64_t now_ms);
    bool ask_lookup(std::uint64_t now_ms, Actions& actions);  // false: nothing to look up
    bool on_lookup(wire::Bytes body);
    void locate(std::uint32_t index, const wire::LookupRecord& record, std::uint32_t first_place);
    bool is_where_it_was(const Entry& entry, const wire::LookupRecord& record,
                         std::uint32_t first_place) const;
    bool ask_unknown_segments(Actions& actions);
    bool plan_reads(std::uint64_t now_ms, Actions& actions);  // false: nothing to read
    int choose_place(const Entry& entry, const std::vector<PeerPlan>& plans);
    bool has_absent_place(const Entry& entry);
    const Route& route(wire::SegmentId segment);
    void emit_reads(const PeerPlan& plan, std::uint64_t now_ms, Actions& actions);
    void add_parts(const PeerPlan& plan, std::size_t& next, std::uint64_t bytes, NodeRead& read,
                   std::vector<wire::ReadItem>& items);
    void add_ranges(const PeerPlan& plan, std::size_t& next, std::uint64_t bytes, NodeRead& read,
                    std::vector<wire::ReadItem>& items);
    void repeat_on_fresh(Ticket ticket, std::span<PartAnswer> answers, Actions& actions);
    void settle_part(const ReadPart& part, PartAnswer& answer);
    void judge(std::uint32_t index);  // all parts of this replica have come or failed
    bool checksum_matches(std::uint32_t index);
    void replica_failed(std::uint32_t index, wire::Status status);
    void answer(std::uint32_t index, wire::Status status);
    bool reads_ranges() const { return !options_.ranges.empty(); }
    std::uint64_t wanted_bytes(std::uint32_t index) const {
        return reads_ranges() ? options_.ranges[index].length : results_[index].length;
    }
    wire::Status misfit(std::uint32_t index) const;  // why what was found cannot be read into its target

    std::span<const std::string_view> keys_;
    Options options_;
    std::vector<std::uint64_t> capacities_;  // empty: open only
    std::vector<GetResult> results_;
    std::vector<std::string> user_metadata_;
    std::vector<Entry> entries_;
    std::vector<wire::ReplicaPlace> places_;
    std::vector<std::uint32_t> asked_;  // keys of the lookup under way
    std::vector<std::string_view> asked_keys_;
    LocationStamp asked_at_;  // when it was first sent
    std::vector<wire::SegmentId> asked_segments_;
    std::vector<Stripe> stripes_;
    std::unordered_map<wire::SegmentId, Route> routes_;
    std::vector<wire::ReadItem> items_scratch_;
    std::size_t next_to_look_up_ = 0;
    std::size_t open_reads_ = 0;
    bool may_recall_ = false;
    std::size_t recalled_count_ = 0;   // entries that were
    std::size_t waiting_count_ = 0;    // kWaiting: every node that has it is busy
    std::uint64_t busy_delay_ms_ = 0;  // of the latest such wait
    bool some_failed_ = false;         // look through all entries again
};

}  // namespace mooncake::client
