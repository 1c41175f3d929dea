// The state machine's inside: all tables together, and the rules that join them. Each verb is in the .cc file
// of its idea (session_verbs, segment_verbs, read_verbs, put_verbs, remove_verbs, list_verbs); what no verb
// asks for is in eviction.cc, expiry.cc, repair.cc, handover.cc and task_verbs.cc.
// metadata.h is the door.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "metadata/command_state.h"
#include "metadata/comparison.h"
#include "metadata/copies.h"
#include "metadata/copy_order.h"
#include "metadata/counters.h"
#include "metadata/departures.h"
#include "metadata/effect.h"
#include "metadata/eviction_policy.h"
#include "metadata/journal.h"
#include "metadata/key_table.h"
#include "metadata/options.h"
#include "metadata/puts.h"
#include "metadata/random.h"
#include "metadata/replica_status.h"
#include "metadata/retiring.h"
#include "metadata/segments.h"
#include "metadata/sessions.h"
#include "metadata/suspects.h"
#include "metadata/tasks.h"
#include "metadata/tombstones.h"

namespace mooncake::metadata {

// Entries of eviction orders that one step may look at, for each key it may handle.
inline constexpr std::size_t kExaminedAKey = 16;

// For so many client_ttl after its start a master takes in what nodes held before it: one for a node to give
// up the master it followed, one for its way here.
inline constexpr std::uint64_t kRebuildTtls = 2;
// Keys whose older values are known to be dead, remembered while inventories come in. Beyond it nothing more
// is taken in: caches may be lost, removes may not.
inline constexpr std::size_t kDeadKeysMax = 1 << 18;

// How often nodes are told what has ended, and how long a node has to free it before that is told: most
// retires are through in a millisecond, and a remove is answered without one after remove_confirm_timeout_ms.
inline constexpr std::uint64_t kTellTombstonesMs = 200;

// Of one key's replicas that ended and whose nodes did not confirm so many of the last are waited for. More
// are put and ended within one remove_confirm_timeout_ms only by many callers who fight for one key.
inline constexpr std::size_t kEarlierEndsMax = 256;

// How long what is free on a segment counts as used after a node found no range in it, and how far what goes
// beyond it doubles: 128 times a value is all of a small segment.
inline constexpr std::uint64_t kNoRangeMs = 1'000;
inline constexpr std::uint32_t kNoRangeDoublingsMax = 7;

// Of a key that was never stored, `why` asks so many other tenants, where it is asked about so few keys: what
// one step costs under the lock must not grow with their product.
inline constexpr std::size_t kTenantsAsked = 64;
inline constexpr std::size_t kKeysAskedOfTenants = 16;

// Keys that fit while there is nothing to compare with.
inline constexpr double kUnmeasuredRoom = 1e18;

// One replica wherever it is, with what it costs there.
struct ReplicaPosition {
    Placed placed;
    std::uint64_t bytes = 0;
};

class Machine {
  public:
    Machine(const Options& options, std::uint64_t epoch, const wire::Uuid& master, std::uint64_t seed);

    bool step(Command& command, std::uint64_t now_ms, Effects& effects);
    void refuse_waiting(Command& command, std::uint64_t now_ms);
    void session_attached(wire::SessionId session, std::uint64_t now_ms);
    void session_detached(wire::SessionId session, std::uint64_t now_ms);
    void expel_session(wire::SessionId session, wire::EventReason reason, std::uint64_t now_ms,
                       Effects& effects);
    void retire_confirmed(wire::SessionId node, std::uint64_t command_id,
                          std::span<const wire::ReplicaId> confirmed, bool is_last);
    void freed(std::span<const wire::ReplicaId> freed, Effects& effects);
    void probed(wire::SessionId node, ProbeResult result, std::uint64_t now_ms, Effects& effects);
    std::string endpoint(wire::SegmentId segment) const;
    bool has_mounted(wire::SessionId session, const wire::Mount& mount) const;
    bool tick(std::uint64_t now_ms, Effects& effects);
    // See Metadata::hear_of_reign.
    void hear_of_reign(std::uint64_t epoch, const wire::Uuid& master, std::uint64_t now_ms);
    std::uint64_t deposed_by() const { return now_ms_ < deposed_until_ms_ ? deposed_by_ : 0; }
    std::optional<CopyOrder> copy_order(wire::ReplicaId target) const;
    std::vector<wire::ReplicaId> copies_to(wire::SessionId node) const;
    void copy_answered(wire::SessionId node, wire::ReplicaId target, wire::Status status,
                       std::uint64_t now_ms, Effects& effects);

    std::uint64_t epoch() const { return epoch_; }
    const wire::Uuid& master() const { return master_; }
    std::uint64_t settled_id() const;
    // What is told to the nodes, encoded; its number rises with each change.
    std::uint64_t tombstones_generation() const { return told_generation_; }
    std::uint64_t generation_due() const { return told_generation_ + (is_news_ ? 1 : 0); }
    const wire::Buffer& tombstones() const { return told_bytes_; }
    // What an earlier master on this host left; before the first command.
    void restore_tombstones(const wire::Tombstones& told);
    std::vector<std::pair<std::string, std::uint64_t>> stats() const;
    std::string broken_invariant() const;  // empty = all hold

  private:
    using State = Command::State;

    // -- dispatch and answers (machine.cc)
    bool begin(State& command, Effects& effects);
    bool run(State& command, Effects& effects);
    void answered(State& command);
    void advance_clock(std::uint64_t now_ms);
    std::uint64_t next_id();
    void begin_epoch(std::uint64_t epoch);
    bool is_refused_as_deposed(State& command);

    // -- sessions (session_verbs.cc)
    bool open_session(State& command);
    bool heartbeat(State& command, Effects& effects);
    bool report(State& command, Effects& effects);
    bool close_session(State& command, Effects& effects);
    void start_ending(Session& session, wire::EventReason reason, Effects& effects);
    bool end_session(Session& session, std::size_t& budget, Effects& effects);
    void revoke_puts_of(Session& session, std::size_t& budget, Effects& effects);

    // -- segments (segment_verbs.cc)
    bool mount(State& command, Effects& effects);
    wire::MountAnswer mount_one(Session& session, const wire::SegmentDescription& segment,
                                const wire::MountOrigin& origin, Effects& effects);
    void follow_epoch(std::uint64_t known_epoch, const wire::Uuid& known_master);
    bool unmount(State& command, Effects& effects);
    bool segments(State& command);
    void expel(SegmentIndex index, wire::EventReason reason, Effects& effects);

    // -- rebuild (rebuild.cc)
    bool inventory(State& command, Effects& effects);
    void adopt(const Session& session, const wire::InventoryItem& item, const wire::ValueHeader& header,
               Effects& effects);
    bool take_in(SegmentIndex index, const wire::InventoryItem& item, const wire::ValueHeader& header,
                 Effects& effects);
    bool is_held(Ref ref, wire::ReplicaId replica) const;
    void add_replica(Ref ref, const Placed& replica);
    // Nodes may still come with what an earlier master granted.
    bool is_rebuilding() const { return now_ms_ < rebuild_until_ms_ && !dead_overflow_; }
    // Some node may hold what another master granted; in a new cluster nobody knows of one.
    bool has_predecessor() const { return first_epoch_ > 1 || tombstones_.has_met_anybody(); }
    // No value of the key at or below put_id may come back by an inventory.
    void note_dead(std::uint64_t hash, wire::PutId put_id);
    bool is_dead(std::uint64_t hash, wire::PutId put_id) const;
    void end_rebuild();

    // -- comparing both sides while they run (reconcile.cc)
    void compare_totals(Session& session, const wire::Report& report);
    bool is_comparable(const Segment& segment, const Session& session) const;
    void take_mark(Session& session, const wire::Report& report);
    bool holdings(State& command, Effects& effects);
    void hear_of(wire::ReplicaId replica, Effects& effects);
    bool go_on_comparing(std::size_t& budget, Effects& effects);
    void begin_comparison();
    void gather_expected(std::size_t& budget);
    void forget_ghosts(std::size_t& budget, Effects& effects);
    void forget_ghost(wire::ReplicaId replica, const Comparison::Expected& expected, Effects& effects);
    void end_comparison(Effects& effects);
    // The node holds something that nothing here knows of: nothing is charged for it, and the node is told
    // until it confirms, as for any retire.
    void end_orphan(SegmentIndex index, wire::ReplicaId replica, Effects& effects);
    void forget_orphan(wire::SessionId node, wire::ReplicaId replica);
    void discount_ended(Segment& segment, wire::ReplicaId replica, const Retiring::Entry& entry);

    // -- tombstones (tombstone_verbs.cc): what masters after this one must not take in
    bool tombstones(State& command, Effects& effects);
    void restore_tombstones(const wire::Tombstones& told, Effects& effects);
    // As note_dead, and told to the nodes: the key was removed, or another value put over whatever there was.
    void note_removed(std::uint32_t tenant, std::string_view key, wire::PutId put_id);
    void note_expelled(const Segment& segment);
    void note_ended(Segment& segment, wire::ReplicaId replica);
    void await_earlier_ends(std::uint64_t hash, State& command, Effects& effects);
    void forget_ended(Segment& segment, wire::ReplicaId replica);
    void tell_soon();
    void tell_tombstones();
    bool sweep_dead(std::size_t& budget, Effects& effects);
    bool may_be_dead(const Object& object) const;
    bool is_told_dead(const Object& object, const Placed& one) const;

    // -- reads (read_verbs.cc)
    bool read_keys(State& command, Effects& effects);
    wire::Status read_one(State& command, std::string_view key, Ref ref, Effects& effects);
    void lookup_one(State& command, Object& object);
    std::uint8_t location_ttl_of(const Object& object) const;
    void count_reads(const State& command, const Object& object);
    void met_lost_copy(Effects& effects) const;
    void lease(Object& object);
    void release_lease(Ref ref, Object& object);
    bool is_reachable(const Object& object, const wire::AvoidList& avoid) const;
    // The keys of a step that somebody wants, for the policy: told at the step's end.
    void want(std::string_view key, std::uint32_t tenant, Ref ref);
    void tell_wanted(std::size_t first, std::size_t total);
    // Of the policy's: how many keys there are, and fit; measured at puts and ticks, for it visits all
    // segments.
    void measure_pool();
    PoolSize pool_size() const { return {visible_count_, keys_that_fit_}; }
    static void raise(Object& object, std::uint64_t rank) {
        if (rank > object.stamp) object.stamp = rank;
    }
    void count_miss(wire::Status status, std::string_view key, std::uint32_t tenant);
    wire::Status absent() const;
    wire::WhyRecord explain(wire::Status status, std::string_view key, std::uint32_t tenant) const;
    bool is_another_tenants(std::string_view key, std::uint32_t tenant) const;
    // Calls answer(key, ref) for up to `keys_max` keys, prefetching; until it answers false.
    template <class Answer>
    void probe_keys(State& command, std::uint32_t tenant, std::size_t keys_max, Answer&& answer);

    // -- nodes that clients cannot reach (suspects.cc)
    void hear_of_peers(const wire::Heartbeat& message, Effects& effects);
    bool is_lost(const Session& session, const Suspect& suspect, ProbeResult result) const;

    // -- operators' questions, and what the journal is told for them (inspect.cc)
    bool inspect(State& command, Effects& effects);
    bool look_for_copy_events(State& command, std::uint64_t hash) const;
    void look_for_pool_events(State& command, std::string_view name) const;
    void describe_key(State& command, Ref ref, std::uint64_t hash, wire::InspectReply& reply) const;
    wire::ToldCopy told_copy(const Placed& replica, std::uint64_t bytes, wire::CopyStatus status) const;
    void describe_segments(std::string_view name, wire::InspectReply& reply) const;
    void describe_events(const State& command, wire::InspectReply& reply) const;
    const Session* session_of(wire::SessionId id) const;
    std::uint64_t left_ms(std::uint64_t until_ms) const {
        return until_ms > now_ms_ ? until_ms - now_ms_ : 0;
    }
    std::uint64_t passed_ms(std::uint64_t since_ms) const { return now_ms_ - std::min(now_ms_, since_ms); }
    void note_pool(wire::EventKind kind, wire::EventReason reason, std::uint64_t number);
    void note_session(wire::EventKind kind, wire::EventReason reason, const Session& session);
    void note_segment(wire::EventKind kind, wire::EventReason reason, const Segment& segment,
                      std::uint64_t number = 0);

    // -- puts (put_verbs.cc, placement.cc)
    bool put_start(State& command, Effects& effects);
    enum class PutOutcome : std::uint8_t { kAnswered, kWaits, kAgain };
    PutOutcome start_put(State& command, Session& session, WaitingKey& waiting, std::size_t& budget,
                         Effects& effects);
    wire::Status may_put(State& command, std::uint64_t size, Ref& ref, Effects& effects);
    void grant(State& command, Session& session, const WaitingKey& key, Ref ref,
               std::span<const SegmentIndex> chosen, Effects& effects);
    void finish_put_start(State& command);
    void answer_put(State& command, std::uint32_t index, wire::Status status);
    bool put_end(State& command, Effects& effects);
    wire::Status end_one(State& command, wire::PutId put_id, std::span<const wire::ReplicaResult> results,
                         Effects& effects);
    void found_no_range(SegmentIndex index, std::uint64_t size);
    void forget_no_ranges();
    void commit(const Put& put, std::span<const Placed> written, State& command, Effects& effects);
    // A value of the record becomes visible; times are what remains, 0 soft pin = the default.
    struct Value {
        wire::PutId put_id = 0;
        std::uint64_t size = 0;
        std::uint64_t ttl_ms = 0;
        std::uint32_t soft_pin_ms = 0;
        std::uint8_t pins = 0;  // kHardPin, kSoftPin
        std::uint8_t replicas_wanted = 1;
    };
    void show(Ref ref, const Value& value, std::span<const Placed> replicas);
    bool put_revoke(State& command, Effects& effects);
    // Ends an unfinished put: its replicas retire, and a record that nothing else needs goes.
    void drop_put(PutIndex index, ReplicaEvent event, Effects& effects,
                  std::vector<wire::ReplicaId>* retired);
    void forget_put(PutIndex index);
    bool is_replaceable(const Put& put) const;

    std::size_t draw_by_capacity(const std::vector<SegmentIndex>& dram);
    std::vector<SegmentIndex> choose_segments(const wire::PutStart& request, const Session& session,
                                              std::uint64_t size);
    bool is_candidate(const Segment& segment, const wire::AvoidList& avoid, std::uint64_t bytes) const {
        return segment.capacity_bytes >= bytes && !avoid.contains(segment.id);
    }
    // Of what a put lacks: it is there, retirements will give it, nothing can, or ask again in the next step.
    enum class Room : std::uint8_t { kIsThere, kWillCome, kNone, kAgain };
    Room make_room(std::uint64_t bytes, const wire::AvoidList& avoid, WaitingKey& waiting,
                   std::size_t& budget, Effects& effects);
    void promise(SegmentIndex index, std::uint64_t bytes, WaitingKey& waiting);
    bool answers(const Segment& segment) const;
    void release_promise(std::uint64_t id);
    void expire_promises();
    Room make_room_for_key(std::size_t key_bytes, std::size_t& budget, Effects& effects);
    std::size_t metadata_bytes() const;

    // -- removal (remove_verbs.cc)
    bool remove_keys(State& command, Effects& effects);
    wire::Status remove_one(State& command, Ref ref, Effects& effects);
    // The copies of a visible value on the segments that the request lists; the value, if these are all.
    wire::Status remove_copies(State& command, Ref ref, Effects& effects);
    bool has_value(std::uint32_t tenant, std::string_view key) const;
    // Ends the visible value: its replicas retire; the record goes unless a put needs it.
    void end_value(Ref ref, ReplicaEvent event, Effects& effects, std::vector<wire::ReplicaId>* retired);
    void erase_record(Ref ref);
    // For whoever asks later why the key is not there.
    void note_end(std::uint64_t hash, ReplicaEvent event);
    // The record as this moment sees it: without replicas on expelled segments, without an ended TTL. False:
    // the record is gone.
    bool freshen(Ref ref, Effects& effects);
    bool drop_expelled_replicas(Ref ref, Effects& effects);
    bool drop_if_told_dead(Ref ref, Effects& effects);

    // -- replicas (replicas.cc): the one function that changes a status, and views
    void change(const ReplicaPosition& replica, ReplicaStatus from, ReplicaEvent event, std::uint64_t subject,
                Effects& effects);
    // change(), with kExpelled for an event where the segment left the pool. True: it retires.
    bool end_replica(const ReplicaPosition& replica, ReplicaStatus from, ReplicaEvent event,
                     std::uint64_t subject, Effects& effects);
    std::uint64_t bytes_on(SegmentIndex segment, std::uint64_t size) const;
    Placed placed(const Object& object, std::size_t i) const {
        if (i == 0) return {object.replica, object.segment};
        return extras_.at<Extra>(object.extra).more()[i - 1];
    }
    void set_value(Object& object, std::span<const Placed> replicas, std::uint64_t soft_pin_until_ms,
                   std::uint64_t ttl_until_ms);
    // Others than before, the times as they are.
    void replace_replicas(Object& object, std::span<const Placed> replicas);
    void clear_value(Object& object);
    EvictionOrder* order_of(const Object& object, SegmentIndex segment);
    void enter_orders(Ref ref);
    void enter_order(Ref ref, const Object& object, SegmentIndex segment);
    void leave_order(const Object& object, SegmentIndex segment, std::uint64_t bytes);
    std::uint64_t soft_pin_until_ms(const Object& object) const {
        return object.has(kSoftPin) ? extras_.at<Extra>(object.extra).soft_pin_until_ms : 0;
    }
    std::uint64_t ttl_until_ms(const Object& object) const {
        return object.extra == 0 ? 0 : extras_.at<Extra>(object.extra).ttl_until_ms;
    }

    // -- eviction (eviction.cc)
    enum class Pass : std::uint8_t { kUnwanted, kKept, kSoftPinned, kSoftPinnedKept };
    static constexpr std::array kPasses{Pass::kUnwanted, Pass::kKept, Pass::kSoftPinned,
                                        Pass::kSoftPinnedKept};
    struct Candidate {
        EvictionOrder::Victim victim;
        SegmentIndex segment = 0;

        bool operator<(const Candidate& other) const { return victim.rank > other.victim.rank; }
    };
    std::optional<EvictionOrder::Victim> victim_on(SegmentIndex segment, Pass pass, std::size_t& budget);
    // Each segment's victim, a heap with the lowest rank on top.
    std::vector<Candidate> victims(std::span<const SegmentIndex> segments, Pass pass, std::size_t& budget);
    void advance(std::vector<Candidate>& heap, Pass pass, std::size_t& budget);
    std::uint64_t evict(Ref ref, Pass pass, Effects& effects);
    bool is_above_watermark() const;
    bool evict_at_watermark(bool may_take_pinned, Effects& effects);
    void relieve(Effects& effects);

    // -- copies (copy_verbs.cc)
    struct CopyPlace {
        bool found = false;
        bool may_come = false;  // there is room, on a node that makes as many copies as it may
        bool is_full = false;   // there is a segment, without room
        SegmentIndex segment = 0;
    };
    static constexpr SegmentIndex kNoSegment = 0xFFFF;
    bool may_copy_more() const;
    bool is_busy_copying(wire::SessionId node) const;
    // `leaving`: the segment whose replica goes afterwards.
    CopyPlace choose_copy_target(const Object& object, SegmentIndex leaving, double used_ratio_max) const;
    bool is_on(const Object& object, SegmentIndex index) const;
    struct CopyReason {
        bool moves = false;
        std::uint8_t attempts = 0;
        wire::TaskId task = 0;
    };
    void start_copy(Ref ref, const Placed& source, SegmentIndex to, const CopyReason& reason,
                    Effects& effects);
    void commit_copy(const Copy& copy, Effects& effects);
    void drop_replica(Ref ref, const Placed& source, ReplicaEvent event, Effects& effects);
    void fail_copy(const Copy& copy, std::string_view why, Effects& effects);
    void end_copy(const Copy& copy, Effects& effects);
    void abandon_copy_of(Ref ref, Effects& effects);
    void abandon_copies_on(SegmentIndex index, Effects& effects);
    void expire_copies(Effects& effects);
    void guard(Ref ref);
    void unguard(Ref ref);
    bool go_on_copying(Effects& effects);

    // -- repair (repair.cc)
    struct Needy {
        Ref ref = 0;
        wire::PutId put_id = 0;
        std::uint64_t due_ms = 0;
        std::uint8_t attempts = 0;
    };
    enum class Started : std::uint8_t { kYes, kLater, kNever };
    bool is_repairing() const;
    void queue_repair(Ref ref, std::uint8_t attempts);
    void search_later();
    bool repair(Effects& effects);
    Started start_repair(const Needy& needy, Effects& effects);
    void earn_repair_credit();
    bool search_needy(std::size_t& budget, Effects& effects);

    // -- handover (handover.cc)
    struct Leaving {
        Ref ref = 0;
        wire::PutId put_id = 0;
        std::uint64_t heat = 0;
        std::uint8_t attempts = 0;

        bool operator<(const Leaving& other) const { return heat < other.heat; }  // the top is the hottest
    };
    bool drain(State& command);
    std::uint64_t heat(const Object& object) const;
    std::optional<Placed> leaving_replica(const Object& object) const;
    void queue_handover(Ref ref, std::uint8_t attempts);
    void keep_hottest();
    bool search_leaving(std::size_t& budget);
    bool hand_over(Effects& effects);

    // -- tasks (task_verbs.cc)
    bool create_task(State& command, Effects& effects);
    bool query_task(State& command);
    bool go_on_with_tasks(Effects& effects);
    enum class TaskStep : std::uint8_t { kWaits, kStarted, kEnded };
    TaskStep go_on_with(Task& task, Effects& effects);
    std::string why_impossible(const Task& task, Ref ref) const;
    TaskStep copy_for(Task& task, Ref ref, Effects& effects);
    TaskStep postpone(Task& task, std::string_view why);
    void end_task(Task& task, wire::TaskStatus status, std::string message);
    void task_copied(const Copy& copy);
    void task_copy_failed(const Copy& copy, std::string_view why);

    // -- what time brings (expiry.cc)
    struct Deadline {
        enum class Kind : std::uint8_t { kSession, kGrace, kTtl, kSoftPin };
        std::uint64_t at_ms = 0;
        std::uint64_t id = 0;  // session or put_id
        Ref ref = 0;
        Kind kind = Kind::kSession;

        bool operator<(const Deadline& other) const { return at_ms > other.at_ms; }  // the top is the first
    };
    void await(const Deadline& deadline);
    std::uint64_t later(std::uint64_t delay_ms) const {
        return delay_ms > ~std::uint64_t{0} - now_ms_ ? ~std::uint64_t{0} : now_ms_ + delay_ms;
    }
    void meet_deadlines(std::size_t& budget, Effects& effects);
    void meet(const Deadline& deadline, std::size_t& budget, Effects& effects);
    bool is_current(const Deadline& deadline) const;
    void end_soft_pin(Ref ref, Object& object);
    void end_sessions(std::size_t& budget, Effects& effects);
    void reap_puts(std::size_t& budget, Effects& effects);
    bool sweep_expelled(std::size_t& budget, Effects& effects);
    void sweep_table(std::size_t& budget, Effects& effects);
    void sweep_puts(std::size_t& budget, Effects& effects);
    void sweep_retiring(std::size_t& budget, Effects& effects);
    void compact_orders(std::size_t& budget);

    // -- list (list_verbs.cc)
    bool list(State& command);
    bool is_listed(const Object& object) const;

    // -- check_invariants (invariants.cc)
    std::string broken_accounting() const;
    std::string broken_orders() const;
    std::string broken_objects() const;
    std::string broken_puts() const;
    std::string broken_copies() const;
    std::string broken_held() const;
    std::string broken_tasks() const;

    const Options options_;
    std::uint64_t epoch_;
    std::uint64_t first_epoch_;  // what has a lower one was granted by another master
    bool has_placed_ = false;    // a replica
    bool is_no_range_due_ = false;
    wire::Uuid master_;
    std::uint64_t deposed_by_ = 0;  // the epoch of the later master, of which was heard last
    std::uint64_t deposed_until_ms_ = 0;
    std::uint64_t counter_ = 0;  // of all ids of this epoch
    Random random_;
    std::uint64_t now_ms_ = 0;

    Tenants tenants_;
    Sessions sessions_;
    Segments segments_;
    KeyTable table_;
    Arena extras_;
    Puts puts_;
    Copies copies_;
    Retiring retiring_;
    Journal journal_;
    Departures departures_;
    Suspects suspects_;
    std::unique_ptr<EvictionPolicy> policy_;
    double keys_that_fit_ = kUnmeasuredRoom;
    Counters counters_;
    std::vector<Deadline> deadlines_;  // heap

    struct Promise {
        std::uint64_t id = 0;
        SegmentIndex segment = 0;
        wire::SegmentId segment_id = 0;
        std::uint64_t bytes = 0;  // 0: kept, or given up
        std::uint64_t until_ms = 0;
    };
    std::deque<Promise> promises_;  // ascending ids
    std::uint64_t promise_counter_ = 0;

    std::uint64_t rebuild_until_ms_ = 0;  // 0: no time was told yet
    // Dead keys by hash, while is_rebuilding; in shards, so that growing one stalls nobody.
    std::array<FlatMap<wire::PutId>, 64> dead_;
    std::size_t dead_count_ = 0;
    bool dead_overflow_ = false;
    bool is_rebuild_over_ = false;
    Tombstones tombstones_;
    wire::Tombstones told_;  // to the nodes and the file
    wire::Buffer told_bytes_;
    std::uint64_t told_generation_ = 0;
    std::uint64_t tell_tombstones_ms_ = 0;
    bool is_news_ = false;  // noted and not told yet
    bool is_dead_sweep_due_ = false;
    std::uint64_t sweep_dead_cursor_ = 0;
    // Replicas taken in meanwhile: no node may tell another one's, or one for two keys.
    std::array<FlatMap<bool>, 64> adopted_;

    Comparison comparison_;                  // one at a time
    std::deque<wire::SegmentId> differing_;  // those that wait for one
    std::size_t orphan_count_ = 0;           // of all segments

    std::uint64_t visible_count_ = 0;
    std::uint64_t hard_pinned_count_ = 0;
    std::uint64_t soft_pinned_count_ = 0;
    std::uint64_t ttl_count_ = 0;
    std::uint64_t value_bytes_ = 0;  // of visible values, once each

    std::deque<Needy> repairs_;       // objects that lack replicas
    std::int64_t repair_credit_ = 0;  // bytes that may be copied now
    std::uint64_t repair_credit_ms_ = 0;
    bool is_search_due_ = false;  // the index is to be searched for such objects
    bool is_searching_ = false;
    std::uint64_t search_cursor_ = 0;
    std::uint64_t search_at_ms_ = 0;  // 0: no search awaits its time
    bool lacks_segments_ = false;     // some object could not be placed since a segment joined last

    std::vector<Leaving> handovers_;  // heap: what leaving nodes are to hand over
    std::uint64_t handover_began_ms_ = 0;
    bool is_handover_search_due_ = false;
    bool is_handover_searching_ = false;
    std::uint64_t handover_cursor_ = 0;

    Tasks tasks_;

    std::uint64_t round_left_bytes_ = 0;  // of the eviction round under way at the watermark
    std::uint64_t round_freed_bytes_ = 0;
    bool is_round_stuck_ = false;  // until the next tick: above the watermark, and nothing may go

    // The sweep after an expulsion: what still names its slots, looked through in turn.
    std::uint64_t sweep_table_cursor_ = 0;
    std::uint64_t sweep_retiring_cursor_ = 0;
    std::size_t sweep_put_cursor_ = 0;
    std::size_t compact_position_ = 0;
    std::vector<Ref> scanned_;      // scratch of walks over the table
    std::vector<Access> accesses_;  // scratch of a step: what was asked for, in order,
    std::vector<Ref> accessed_;     // and what of it is there (0: it is not)
};

}  // namespace mooncake::metadata
