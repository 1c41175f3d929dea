// The native master's driver without sockets: the real state machine, a clock moved by hand, and nodes that
// are links whose frames the test reads. What runs over sockets is in tests/master/test_lane.py.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "master/bounded_clock.h"
#include "master/link.h"
#include "master/retire_queues.h"
#include "master/state_driver.h"
#include "wire/control.h"
#include "wire/lane.h"

namespace mooncake::wire {

static std::ostream& operator<<(std::ostream& out, Status status) { return out << status_name(status); }

}  // namespace mooncake::wire

namespace {

using namespace mooncake;
using master::BoundedClock;
using master::DriverOptions;
using master::LinkPtr;
using master::RetireQueues;
using master::StateDriver;
using wire::Buffer;
using wire::Status;
using wire::Verb;

constexpr std::uint64_t kKiB = 1024;

Buffer packed(const std::function<void(wire::Writer&)>& encode) {
    Buffer body;
    wire::Writer writer(body);
    encode(writer);
    return body;
}

wire::Uuid uuid_of(std::uint8_t number) {
    wire::Uuid uuid{};
    uuid.fill(number);
    return uuid;
}

// An answer that has come or has not.
struct Answer {
    std::optional<Status> status;
    Buffer body;
    bool came() const { return status.has_value(); }
};
using AnswerPtr = std::shared_ptr<Answer>;

// A link whose other end is the test.
struct Peer {
    explicit Peer(wire::Role role)
        : link(std::make_shared<master::Link>(
              role, [this](Buffer frame) { frames.push_back(std::move(frame)); },
              [this](std::string why) { closed = std::move(why); })) {}
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    // Takes the retire commands that came since the last call.
    std::vector<wire::Retire> take_commands() {
        std::vector<wire::Retire> commands;
        for (const auto& frame : std::exchange(frames, {})) {
            const auto header = wire::parse_frame_header(wire::Bytes(frame));
            CHECK(header && header->verb == Verb::kRetire && !header->is_reply());
            auto command = wire::parse_retire(wire::Bytes(frame).subspan(wire::kFrameHeaderBytes));
            CHECK(command.has_value());
            commands.push_back(std::move(*command));
        }
        return commands;
    }

    std::vector<Buffer> frames;
    std::string closed;
    LinkPtr link;
};

struct Put {
    Status status = Status::kOk;
    wire::PutId put_id = 0;
    wire::ReplicaPlace place;
};

// A master with one client and one node, and the bodies they send.
class World {
  public:
    explicit World(DriverOptions options = {}, metadata::Options metadata = {})
        : clock(500), driver(metadata, options, 1, uuid_of(9), 42, clock) {
        clock.advance(reading_ms_);
    }

    // Time goes on in readings of 50 ms, each with its ticks.
    void pass(std::uint64_t ms) {
        for (std::uint64_t gone = 0; gone < ms; gone += master::kClockPeriodMs) {
            reading_ms_ += std::min(ms - gone, master::kClockPeriodMs);
            clock.advance(reading_ms_);
            tick();
        }
    }
    void stand_still(std::uint64_t ms) {
        reading_ms_ += ms;
        clock.advance(reading_ms_);
        tick();
    }
    void tick() {
        for (int i = 0; i < 1000 && !driver.tick(); ++i) {
        }
        driver.check_invariants();
    }

    AnswerPtr ask(Verb verb, const Buffer& body, const LinkPtr& link = nullptr) {
        auto answer = std::make_shared<Answer>();
        driver.submit(verb, body, link, [answer](Status status, Buffer reply) {
            CHECK(!answer->came());
            answer->status = status;
            answer->body = std::move(reply);
        });
        driver.check_invariants();
        return answer;
    }

    wire::SessionId open_session(std::uint8_t process, const LinkPtr& link) {
        wire::OpenSession message;
        message.process = uuid_of(process);
        message.name = "test";
        message.host_id = "host-a";
        const auto answer =
            ask(Verb::kOpenSession, packed([&](auto& writer) { wire::encode(message, writer); }), link);
        CHECK_EQUAL(*answer->status, Status::kOk);
        return wire::parse_open_session_reply(answer->body)->session;
    }

    wire::SegmentId mount(wire::SessionId session, std::uint64_t capacity, const LinkPtr& link) {
        const std::string name = "segment-" + std::to_string(++mounted_);
        wire::SegmentDescription segment;
        segment.capacity_bytes = capacity;
        segment.incarnation = uuid_of(static_cast<std::uint8_t>(100 + mounted_));
        segment.name = name;
        segment.host_id = "host-a";
        segment.endpoints = {"tcp://127.0.0.1:1"};
        const auto answer = ask(Verb::kMount, packed([&](auto& writer) {
                                    wire::encode_mount({session, next_sequence(), 0, 0}, {},
                                                       std::span(&segment, 1), writer);
                                }),
                                link);
        CHECK_EQUAL(*answer->status, Status::kOk);
        const auto mounts = wire::parse_mount_reply(answer->body);
        CHECK(mounts && mounts->size() == 1);
        CHECK_EQUAL(mounts->at(0).status, Status::kOk);
        return mounts->at(0).segment;
    }

    void unmount(wire::SessionId session, wire::SegmentId segment, const LinkPtr& link) {
        const auto answer = ask(Verb::kUnmount, packed([&](auto& writer) {
                                    wire::encode_segment_ids({session, next_sequence(), 0, 0},
                                                             std::span(&segment, 1), writer);
                                }),
                                link);
        CHECK_EQUAL(*answer->status, Status::kOk);
    }

    Buffer put_start_body(wire::SessionId session, std::string_view key, std::uint64_t size,
                          std::uint64_t sequence, std::uint8_t flags = 0) {
        wire::PutOptions options;
        options.flags = flags;
        const std::uint64_t no_parent = 0;
        return packed([&](auto& writer) {
            wire::encode_put_start({session, sequence, 0, 0}, {}, options, {}, std::span(&key, 1),
                                   std::span(&size, 1), std::span(&no_parent, 1), writer);
        });
    }
    AnswerPtr put_start(wire::SessionId session, std::string_view key, std::uint64_t size,
                        const LinkPtr& link) {
        return ask(Verb::kPutStart, put_start_body(session, key, size, next_sequence()), link);
    }
    AnswerPtr put_end(wire::SessionId session, const Put& put, const LinkPtr& link) {
        const wire::PutEndItem item{put.put_id, 1, 0};
        const wire::ReplicaResult result{put.place.replica, Status::kOk, 0, 0};
        return ask(Verb::kPutEnd, packed([&](auto& writer) {
                       wire::encode_put_end({session, next_sequence(), 0, 0}, std::span(&item, 1),
                                            std::span(&result, 1), writer);
                   }),
                   link);
    }
    AnswerPtr put_revoke(wire::SessionId session, const Put& put, const LinkPtr& link) {
        return ask(Verb::kPutRevoke, packed([&](auto& writer) {
                       wire::encode_put_revoke({session, next_sequence(), 0, 0}, std::span(&put.put_id, 1),
                                               writer);
                   }),
                   link);
    }
    Buffer keys_body(wire::SessionId session, std::string_view key, std::uint64_t sequence) {
        return packed([&](auto& writer) {
            wire::encode_keys_request({session, sequence, wire::kRemoveForce, 0}, {}, std::span(&key, 1),
                                      writer);
        });
    }
    AnswerPtr remove(wire::SessionId session, std::string_view key, const LinkPtr& link) {
        return ask(Verb::kRemove, keys_body(session, key, next_sequence()), link);
    }
    Status exists(wire::SessionId session, std::string_view key, const LinkPtr& link) {
        Buffer body = packed([&](auto& writer) {
            wire::encode_keys_request({session, 0, wire::kExistsWithoutHold, 0}, {}, std::span(&key, 1),
                                      writer);
        });
        const auto answer = ask(Verb::kExists, body, link);
        CHECK_EQUAL(*answer->status, Status::kOk);
        return wire::parse_statuses(answer->body)->at(0);
    }
    void heartbeat(wire::SessionId session, const LinkPtr& link) {
        ask(Verb::kHeartbeat,
            packed([&](auto& writer) { wire::encode_prefix({session, 0, 0, 0}, {}, writer); }), link);
    }
    void confirm(Peer& node, const wire::Retire& command, std::span<const wire::ReplicaId> freed) {
        const Buffer body =
            packed([&](auto& writer) { wire::encode_retire_reply(command.command_id, freed, writer); });
        CHECK(driver.retire_answered(node.link, Status::kOk, body));
        driver.check_invariants();
    }
    void confirm_all(Peer& node) {
        for (const auto& command : node.take_commands()) confirm(node, command, command.replicas);
    }
    std::uint64_t stat(std::string_view name) {
        for (const auto& [key, value] : driver.stats()) {
            if (key == name) return value;
        }
        std::fprintf(stderr, "no stat named %s\n", std::string(name).c_str());
        std::abort();
    }
    std::uint64_t next_sequence() { return ++sequence_; }

    BoundedClock clock;
    StateDriver driver;

  private:
    std::uint64_t reading_ms_ = 1'000'000;
    std::uint64_t sequence_ = 0;
    int mounted_ = 0;
};

Put grant_of(const AnswerPtr& answer) {
    CHECK(answer->came());
    CHECK_EQUAL(*answer->status, Status::kOk);
    const auto view = wire::Places<wire::GrantRecord>::parse(answer->body);
    CHECK(view && view->count == 1);
    Put put;
    put.status = view->record(0).status;
    put.put_id = view->record(0).put_id;
    if (view->record(0).replica_count > 0) put.place = view->place(0);
    return put;
}

Status only_status(const AnswerPtr& answer) {
    CHECK(answer->came());
    CHECK_EQUAL(*answer->status, Status::kOk);
    const auto statuses = wire::parse_statuses(answer->body);
    CHECK(statuses && statuses->size() == 1);
    return statuses->at(0);
}

// A client, a node with one segment, and one stored value.
struct Cluster {
    explicit Cluster(DriverOptions options = {}, metadata::Options metadata = {},
                     std::uint64_t capacity = 1024 * kKiB)
        : world(options, metadata),
          client(wire::Role::kClient),
          node(wire::Role::kNode),
          session(world.open_session(1, client.link)),
          node_session(world.open_session(2, node.link)),
          segment(world.mount(node_session, capacity, node.link)) {}

    Put store(std::string_view key, std::uint64_t size) {
        const Put put = grant_of(world.put_start(session, key, size, client.link));
        CHECK_EQUAL(put.status, Status::kOk);
        CHECK_EQUAL(only_status(world.put_end(session, put, client.link)), Status::kOk);
        return put;
    }

    World world;
    Peer client;
    Peer node;
    wire::SessionId session;
    wire::SessionId node_session;
    wire::SegmentId segment;
};

}  // namespace

// ---- the clock ----

TEST(clock_follows_readings) {
    BoundedClock clock(500);
    clock.advance(7'000);
    const auto start = clock.now_ms();
    CHECK_EQUAL(clock.advance(7'050), start + 50);
    CHECK_EQUAL(clock.advance(7'550), start + 550);
    CHECK_EQUAL(clock.now_ms(), start + 550);
}

TEST(clock_drops_what_exceeds_the_step_for_good) {
    BoundedClock clock(500);
    clock.advance(0);
    const auto start = clock.now_ms();
    CHECK_EQUAL(clock.advance(60'000), start + 500);
    CHECK_EQUAL(clock.dropped_ms(), 59'500u);
    CHECK_EQUAL(clock.advance(60'050), start + 550);
    CHECK_EQUAL(clock.advance(60'000), start + 550);  // a reading that went back moves nothing
}

TEST(stopped_master_expires_nobody) {
    Cluster cluster;
    cluster.store("key", 4 * kKiB);
    for (int i = 0; i < 5; ++i) cluster.world.stand_still(60'000);
    CHECK_EQUAL(cluster.world.exists(cluster.session, "key", cluster.client.link), Status::kOk);
}

TEST(silent_session_is_expired_by_time_that_passed) {
    Cluster cluster;
    cluster.store("key", 4 * kKiB);
    for (int i = 0; i < 30; ++i) {
        cluster.world.pass(500);
        cluster.world.heartbeat(cluster.session, cluster.client.link);
    }
    CHECK(cluster.world.exists(cluster.session, "key", cluster.client.link) != Status::kOk);
}

// ---- retire queues ----

TEST(retires_are_batched_behind_two_commands_in_flight) {
    RetireQueues queues;
    queues.mounted(7, 1);
    for (wire::ReplicaId id = 1; id <= 3; ++id) {
        CHECK(queues.retire(7, id));
        const auto command = queues.next_command(1, 0);
        CHECK_EQUAL(command.has_value(), id <= 2);
    }
    CHECK(queues.retire(7, 4));
    CHECK_EQUAL(queues.length(), 4u);
    CHECK((queues.confirmed(1, 1) == std::vector<wire::ReplicaId>{1}));
    const auto next = queues.next_command(1, 0);
    CHECK(next && next->id == 3);
    CHECK((next->replicas == std::vector<wire::ReplicaId>{3, 4}));
    CHECK_EQUAL(queues.length(), 3u);
}

TEST(unconfirmed_retires_are_repeated_on_a_new_connection) {
    RetireQueues queues;
    queues.mounted(7, 1);
    queues.mounted(8, 1);
    queues.retire(7, 10);
    queues.retire(8, 20);
    const auto first = queues.next_command(1, 0);
    CHECK_EQUAL(first->replicas.size(), 2u);
    queues.reconnected(1);
    const auto again = queues.next_command(1, 0);
    CHECK(again && again->id > first->id);
    CHECK_EQUAL(again->replicas.size(), 2u);
    CHECK(queues.confirmed(1, first->id).empty());  // a late answer to the lost one
    CHECK_EQUAL(queues.confirmed(1, again->id).size(), 2u);
    CHECK_EQUAL(queues.length(), 0u);
}

TEST(expelled_segment_drops_its_retires_in_flight_and_pending) {
    RetireQueues queues;
    queues.mounted(7, 1);
    queues.mounted(8, 1);
    queues.retire(7, 10);
    queues.retire(8, 20);
    const auto command = queues.next_command(1, 0);
    queues.retire(7, 11);
    auto dropped = queues.expelled(7);
    std::sort(dropped.begin(), dropped.end());
    CHECK((dropped == std::vector<wire::ReplicaId>{10, 11}));
    CHECK((queues.confirmed(1, command->id) == std::vector<wire::ReplicaId>{20}));
    CHECK(!queues.retire(7, 12));
    CHECK_EQUAL(queues.length(), 0u);
}

TEST(one_command_carries_a_bounded_number_of_ids) {
    RetireQueues queues;
    queues.mounted(7, 1);
    for (wire::ReplicaId id = 1; id <= master::kCommandIdsMax + 1; ++id) queues.retire(7, id);
    CHECK_EQUAL(queues.next_command(1, 0)->replicas.size(), master::kCommandIdsMax);
    CHECK_EQUAL(queues.next_command(1, 0)->replicas.size(), 1u);
}

TEST(command_ids_rise_across_sessions_of_one_node) {
    RetireQueues queues;
    queues.mounted(7, 1);
    queues.retire(7, 1);
    const auto last = queues.next_command(1, 0)->id;
    queues.session_ended(1);
    queues.mounted(8, 2);
    queues.retire(8, 2);
    CHECK(queues.next_command(2, 0)->id > last);
}

// ---- calls that wait ----

TEST(remove_is_answered_when_the_node_confirmed) {
    Cluster cluster;
    const Put put = cluster.store("key", 4 * kKiB);
    const auto answer = cluster.world.remove(cluster.session, "key", cluster.client.link);
    CHECK(!answer->came());
    CHECK_EQUAL(cluster.world.exists(cluster.session, "key", cluster.client.link), Status::kObjectNotFound);
    const auto commands = cluster.node.take_commands();
    CHECK_EQUAL(commands.size(), 1u);
    CHECK((commands[0].replicas == std::vector<wire::ReplicaId>{put.place.replica}));
    cluster.world.confirm(cluster.node, commands[0], {});  // confirmed, but still read by somebody
    CHECK_EQUAL(only_status(answer), Status::kOk);
    CHECK_EQUAL(cluster.world.stat("parked_calls_count"), 0u);
    CHECK_EQUAL(cluster.world.stat("retire_queue_count"), 0u);
}

TEST(remove_is_answered_after_the_timeout_when_the_node_is_silent) {
    DriverOptions options;
    options.remove_confirm_timeout_ms = 200;
    Cluster cluster(options);
    cluster.store("key", 4 * kKiB);
    const auto answer = cluster.world.remove(cluster.session, "key", cluster.client.link);
    cluster.world.pass(150);
    CHECK(!answer->came());
    cluster.world.pass(50);
    CHECK_EQUAL(only_status(answer), Status::kOk);
    CHECK_EQUAL(cluster.world.stat("confirm_wait_timeouts_total"), 1u);
    CHECK_EQUAL(cluster.world.stat("retire_queue_count"), 1u);  // it stays pending
    cluster.world.confirm_all(cluster.node);
    CHECK_EQUAL(cluster.world.stat("retire_queue_count"), 0u);
}

TEST(retire_is_sent_again_when_the_node_reconnects) {
    Cluster cluster;
    cluster.store("key", 4 * kKiB);
    const auto answer = cluster.world.remove(cluster.session, "key", cluster.client.link);
    CHECK_EQUAL(cluster.node.take_commands().size(), 1u);
    cluster.world.driver.link_closed(cluster.node.link);
    Peer again(wire::Role::kNode);
    cluster.world.heartbeat(cluster.node_session, again.link);
    const auto commands = again.take_commands();
    CHECK_EQUAL(commands.size(), 1u);
    CHECK(!answer->came());
    cluster.world.confirm(again, commands[0], commands[0].replicas);
    CHECK_EQUAL(only_status(answer), Status::kOk);
}

TEST(revoke_waits_for_the_node_too) {
    Cluster cluster;
    const Put put = grant_of(cluster.world.put_start(cluster.session, "key", kKiB, cluster.client.link));
    const auto answer = cluster.world.put_revoke(cluster.session, put, cluster.client.link);
    CHECK(!answer->came());
    cluster.world.confirm_all(cluster.node);
    CHECK_EQUAL(only_status(answer), Status::kOk);
}

TEST(upsert_commit_waits_until_the_old_value_is_gone) {
    Cluster cluster;
    const Put old = cluster.store("key", kKiB);
    const Put put = grant_of(
        cluster.world.ask(Verb::kPutStart,
                          cluster.world.put_start_body(cluster.session, "key", kKiB,
                                                       cluster.world.next_sequence(), wire::kPutUpsert),
                          cluster.client.link));
    const auto answer = cluster.world.put_end(cluster.session, put, cluster.client.link);
    CHECK(!answer->came());
    const auto commands = cluster.node.take_commands();
    CHECK((commands.at(0).replicas == std::vector<wire::ReplicaId>{old.place.replica}));
    cluster.world.confirm(cluster.node, commands[0], commands[0].replicas);
    CHECK_EQUAL(only_status(answer), Status::kOk);
}

TEST(expelled_node_ends_the_waiting) {
    metadata::Options metadata;
    metadata.client_ttl_ms = 500;
    Cluster cluster({}, metadata);
    cluster.store("key", kKiB);
    const auto answer = cluster.world.remove(cluster.session, "key", cluster.client.link);
    for (int i = 0; i < 14 && !answer->came(); ++i) {
        cluster.world.pass(50);
        cluster.world.heartbeat(cluster.session, cluster.client.link);
    }
    CHECK_EQUAL(only_status(answer), Status::kOk);
    CHECK_EQUAL(cluster.world.stat("confirm_wait_timeouts_total"), 0u);
    CHECK_EQUAL(cluster.world.stat("retire_queue_count"), 0u);
}

TEST(unmounted_segment_ends_the_waiting) {
    Cluster cluster;
    cluster.store("key", kKiB);
    const auto answer = cluster.world.remove(cluster.session, "key", cluster.client.link);
    CHECK(!answer->came());
    cluster.world.unmount(cluster.node_session, cluster.segment, cluster.node.link);
    CHECK_EQUAL(only_status(answer), Status::kOk);
    CHECK_EQUAL(cluster.world.stat("retire_queue_count"), 0u);
}

TEST(parked_put_start_is_granted_when_space_returns) {
    Cluster cluster;
    cluster.store("old", 600 * kKiB);
    const auto answer = cluster.world.put_start(cluster.session, "new", 600 * kKiB, cluster.client.link);
    CHECK(!answer->came());
    CHECK_EQUAL(cluster.world.stat("parked_calls_count"), 1u);
    cluster.world.confirm_all(cluster.node);
    CHECK_EQUAL(grant_of(answer).status, Status::kOk);
    CHECK_EQUAL(cluster.world.stat("parked_calls_count"), 0u);
}

TEST(parked_put_start_is_refused_after_alloc_wait) {
    Cluster cluster;
    cluster.store("old", 600 * kKiB);
    const auto answer = cluster.world.put_start(cluster.session, "new", 600 * kKiB, cluster.client.link);
    cluster.world.pass(50);
    CHECK(!answer->came());
    cluster.world.pass(50);
    CHECK_EQUAL(grant_of(answer).status, Status::kNoSpace);
    CHECK_EQUAL(cluster.world.stat("space_wait_timeouts_total"), 1u);
    cluster.world.confirm_all(cluster.node);
    CHECK_EQUAL(
        grant_of(cluster.world.put_start(cluster.session, "new", 600 * kKiB, cluster.client.link)).status,
        Status::kOk);
}

TEST(calls_beyond_the_parking_bound_are_busy) {
    DriverOptions options;
    options.parked_calls_max = 1;
    Cluster cluster(options);
    cluster.store("a", kKiB);
    cluster.store("b", kKiB);
    const auto first = cluster.world.remove(cluster.session, "a", cluster.client.link);
    const auto second = cluster.world.remove(cluster.session, "b", cluster.client.link);
    CHECK(!first->came());
    CHECK_EQUAL(*second->status, Status::kBusy);
    CHECK_EQUAL(cluster.world.exists(cluster.session, "b", cluster.client.link), Status::kOk);
    cluster.world.confirm_all(cluster.node);
    CHECK_EQUAL(only_status(first), Status::kOk);
}

TEST(stop_answers_parked_calls_and_later_ones) {
    Cluster cluster;
    cluster.store("key", kKiB);
    const auto parked = cluster.world.remove(cluster.session, "key", cluster.client.link);
    cluster.world.driver.stop();
    CHECK_EQUAL(*parked->status, Status::kClosed);
    const auto later = cluster.world.remove(cluster.session, "key", cluster.client.link);
    CHECK_EQUAL(*later->status, Status::kClosed);
}

// ---- repeats ----

TEST(repeat_of_a_request_in_progress_gets_its_answer) {
    Cluster cluster;
    cluster.store("key", kKiB);
    const Buffer body = cluster.world.keys_body(cluster.session, "key", cluster.world.next_sequence());
    Peer other(wire::Role::kClient);
    const auto first = cluster.world.ask(Verb::kRemove, body, cluster.client.link);
    const auto repeat = cluster.world.ask(Verb::kRemove, body, other.link);
    CHECK(!first->came() && !repeat->came());
    CHECK_EQUAL(cluster.world.stat("parked_calls_count"), 1u);
    cluster.world.confirm_all(cluster.node);
    CHECK_EQUAL(only_status(first), Status::kOk);
    CHECK_EQUAL(only_status(repeat), Status::kOk);
    CHECK(first->body == repeat->body);
    CHECK_EQUAL(only_status(cluster.world.ask(Verb::kRemove, body, nullptr)), Status::kOk);
}

TEST(repeat_over_another_connection_gets_the_same_grant) {
    Cluster cluster;
    const Buffer body =
        cluster.world.put_start_body(cluster.session, "key", kKiB, cluster.world.next_sequence());
    Peer other(wire::Role::kClient);
    const Put first = grant_of(cluster.world.ask(Verb::kPutStart, body, cluster.client.link));
    const Put repeat = grant_of(cluster.world.ask(Verb::kPutStart, body, other.link));
    CHECK_EQUAL(first.put_id, repeat.put_id);
    CHECK_EQUAL(first.place.replica, repeat.place.replica);
}

TEST(sequence_in_progress_under_another_verb_is_refused) {
    Cluster cluster;
    cluster.store("key", kKiB);
    const auto sequence = cluster.world.next_sequence();
    const auto parked = cluster.world.ask(
        Verb::kRemove, cluster.world.keys_body(cluster.session, "key", sequence), cluster.client.link);
    const auto other =
        cluster.world.ask(Verb::kPutStart, cluster.world.put_start_body(cluster.session, "k", kKiB, sequence),
                          cluster.client.link);
    CHECK_EQUAL(*other->status, Status::kInvalidParams);
    cluster.world.confirm_all(cluster.node);
    CHECK_EQUAL(only_status(parked), Status::kOk);
}

// ---- sessions and links ----

TEST(unfinished_put_of_a_detached_session_is_replaced_after_the_grace) {
    Cluster cluster;
    Peer doomed(wire::Role::kClient);
    const auto owner = cluster.world.open_session(3, doomed.link);
    CHECK_EQUAL(grant_of(cluster.world.put_start(owner, "key", kKiB, doomed.link)).status, Status::kOk);
    cluster.world.driver.link_closed(doomed.link);
    CHECK_EQUAL(grant_of(cluster.world.put_start(cluster.session, "key", kKiB, cluster.client.link)).status,
                Status::kNotReady);
    cluster.world.pass(1'100);
    CHECK_EQUAL(grant_of(cluster.world.put_start(cluster.session, "key", kKiB, cluster.client.link)).status,
                Status::kOk);
}

TEST(session_lives_on_while_any_of_its_connections_is_open) {
    Cluster cluster;
    Peer first(wire::Role::kClient);
    Peer second(wire::Role::kClient);
    const auto owner = cluster.world.open_session(3, first.link);
    cluster.world.heartbeat(owner, second.link);
    CHECK_EQUAL(grant_of(cluster.world.put_start(owner, "key", kKiB, first.link)).status, Status::kOk);
    cluster.world.driver.link_closed(first.link);
    cluster.world.pass(1'500);
    CHECK_EQUAL(grant_of(cluster.world.put_start(cluster.session, "key", kKiB, cluster.client.link)).status,
                Status::kNotReady);
}

TEST(unknown_session_leaves_nothing_behind) {
    Cluster cluster;
    const auto before = cluster.world.stat("connected_sessions_count");
    const auto answer = cluster.world.remove(0xDEAD, "key", cluster.client.link);
    CHECK_EQUAL(*answer->status, Status::kSessionUnknown);
    CHECK_EQUAL(cluster.world.stat("connected_sessions_count"), before);
}

TEST(sessions_on_one_connection_are_bounded) {
    DriverOptions options;
    options.sessions_a_link_max = 1;
    Cluster cluster(options);
    const auto answer = cluster.world.remove(cluster.node_session, "key", cluster.client.link);
    CHECK_EQUAL(*answer->status, Status::kBusy);
}

TEST(node_frees_only_what_the_command_named) {
    Cluster cluster;
    const Put a = cluster.store("a", 100 * kKiB);
    const Put b = cluster.store("b", 100 * kKiB);
    const Put kept = cluster.store("kept", 100 * kKiB);
    cluster.world.remove(cluster.session, "a", cluster.client.link);
    cluster.world.remove(cluster.session, "b", cluster.client.link);
    const auto commands = cluster.node.take_commands();
    const std::vector<wire::ReplicaId> claimed{kept.place.replica, b.place.replica, a.place.replica};
    cluster.world.confirm(cluster.node, commands.at(0), claimed);
    CHECK_EQUAL(cluster.world.exists(cluster.session, "kept", cluster.client.link), Status::kOk);
    // b retires, too, but its command is not confirmed: its range may still be read.
    CHECK_EQUAL(cluster.world.stat("dram_retiring_bytes"), 100 * kKiB);
}

TEST(node_that_leaves_a_command_unanswered_is_expelled) {
    metadata::Options metadata;
    metadata.client_ttl_ms = 2'000;
    Cluster cluster({}, metadata);
    cluster.store("key", kKiB);
    cluster.store("other", kKiB);
    cluster.world.remove(cluster.session, "key", cluster.client.link);
    for (int i = 0; i < 10; ++i) {
        cluster.world.pass(500);
        cluster.world.heartbeat(cluster.node_session, cluster.node.link);
        cluster.world.heartbeat(cluster.session, cluster.client.link);
    }
    CHECK(!cluster.node.closed.empty());
    CHECK_EQUAL(cluster.world.stat("segment_count"), 0u);
    CHECK_EQUAL(cluster.world.exists(cluster.session, "other", cluster.client.link), Status::kObjectNotFound);
    CHECK_EQUAL(cluster.world.stat("retire_queue_count"), 0u);
    cluster.world.driver.check_invariants();
}

TEST(malformed_answer_of_a_node_is_told) {
    Cluster cluster;
    CHECK(!cluster.world.driver.retire_answered(cluster.node.link, Status::kOk, Buffer{1, 2, 3}));
}

int main(int argc, char** argv) { return check::run(argc, argv); }
