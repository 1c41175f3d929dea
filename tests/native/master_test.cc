// The native master's driver without sockets: the real state machine, a clock moved by hand, and nodes that
// are links whose frames the test reads. What runs over sockets is in tests/master/test_lane.py.
#include "master_world.h"

using namespace master_world;

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
    CHECK(!queues.confirmed(1, first->id));  // a late answer to the lost one
    CHECK_EQUAL(queues.confirmed(1, again->id)->size(), 2u);
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

// It may serve the value to who remembers its place: that it left is no confirmation.
TEST(expelled_node_shortens_no_waiting) {
    metadata::Options metadata;
    metadata.client_ttl_ms = 500;
    Cluster cluster({}, metadata);
    cluster.store("key", kKiB);
    const auto answer = cluster.world.remove(cluster.session, "key", cluster.client.link);
    for (int i = 0; i < 19; ++i) {
        cluster.world.pass(50);
        cluster.world.heartbeat(cluster.session, cluster.client.link);
    }
    CHECK_EQUAL(cluster.world.stat("retire_queue_count"), 0u);
    CHECK(!answer->came());
    cluster.world.pass(50);
    CHECK_EQUAL(only_status(answer), Status::kOk);
    CHECK_EQUAL(cluster.world.stat("confirm_wait_timeouts_total"), 1u);
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
