// Copies from node to node: the threads that fetch, and the control connection that orders and answers.
#include "node/copier.h"
#include "scripted_master.h"
#include "wire/crc32c.h"
#include "wire/value_checksum.h"

namespace {

using namespace harness;

// A source's value with a checksum that is true.
wire::Buffer true_header(wire::ReplicaId replica, const wire::Buffer& value, std::uint64_t ttl_ms = 0) {
    const std::string key = key_of(replica);
    wire::ValueHeader header;
    header.put_id = replica;
    header.size = value.size();
    header.ttl_ms = ttl_ms;
    header.checksum =
        wire::crc32c(wire::value_checksum_seed("tenant", key, replica), value.data(), value.size());
    header.flags = wire::kValueHasChecksum;
    header.replica_count = 3;
    header.tenant = "tenant";
    header.key = key;
    header.user_metadata = "dtype";
    wire::Buffer buffer;
    wire::Writer writer(buffer);
    wire::encode(header, writer);
    return buffer;
}

void store(node::Holdings& holdings, wire::ReplicaId replica, const wire::Buffer& value,
           const wire::Buffer& header) {
    holdings.with_directory([&](node::Directory& directory) {
        const wire::WriteItem item{replica, directory.segment_id(0), value.size(), 0, 0};
        const auto granted = directory.begin_write(item, header, directory.epoch());
        CHECK(wire::ok(granted.status));
        std::copy(value.begin(), value.end(), holdings.at(granted.segment, granted.offset));
        CHECK(wire::ok(directory.seal(replica)));
    });
}

node::CopyTask task_of(wire::ReplicaId source, std::uint64_t size, wire::ReplicaId target,
                       std::vector<std::string> endpoints) {
    node::CopyTask task;
    task.target = target;
    task.segment = kSegment;
    task.source = source;
    task.digest = wire::key_digest("tenant", key_of(source));
    task.put_id = source;
    task.size = size;
    task.epoch = 1;
    task.deadline_ms = net::monotonic_ms() + kHangMs;
    task.endpoints = std::move(endpoints);
    return task;
}

std::string at(std::uint16_t port) { return "tcp://127.0.0.1:" + std::to_string(port); }

// Two nodes: values lie on `source`, the copier works for `target`.
struct Pair {
    ServedMemory source{64u << 20};
    ServedMemory target{64u << 20};
    node::Copier copier{target.holdings, {}};
    Journal journal;

    std::string endpoint() const { return at(source.server->port()); }
    Status copy(node::CopyTask task) {
        std::atomic<int> answer{1};
        copier.fetch(std::move(task), [&](Status status) { answer = static_cast<int>(status); });
        wait_until("the copy is answered", [&] { return answer != 1; });
        return static_cast<Status>(answer.load());
    }
    wire::Buffer bytes_of(wire::ReplicaId target_id, wire::ReplicaId source_id) {
        DataClient client(target.server->port());
        wire::ReadItem item = read_item(source_id);
        item.replica = target_id;
        auto values = client.read({item});
        CHECK(wire::ok(values[0].status));
        return std::move(values[0].bytes);
    }
    void nothing_is_left() {
        CHECK_EQUAL(target.counts().replicas, 0u);
        wait_until("the source has no reader", [&] { return source.counts().references == 0; });
    }
};

TEST(a_copy_has_the_bytes_and_the_header_of_its_source) {
    Pair pair;
    const wire::Buffer value = pattern(20u << 20);  // three frames
    store(*pair.source.holdings, replica_id(1), value, true_header(replica_id(1), value, 3'600'000));
    CHECK(pair.copy(task_of(replica_id(1), value.size(), replica_id(7), {pair.endpoint()})) == Status::kOk);
    CHECK(pair.bytes_of(replica_id(7), replica_id(1)) == value);
    pair.target.holdings->with_directory([&](node::Directory& directory) {
        const auto view = directory.open(replica_id(7), read_item(replica_id(1)).digest);
        const auto header = wire::parse_value_header(view.header);
        CHECK(header && header->put_id == replica_id(1) && header->replica_count == 3);
        CHECK(header->user_metadata == "dtype");
        CHECK(header->ttl_ms > 0 && header->ttl_ms <= 3'600'000);
        directory.close(view.reference);
    });
    wait_until("the source has no reader", [&] { return pair.source.counts().references == 0; });
}

TEST(an_empty_value_is_copied_too) {
    Pair pair;
    store(*pair.source.holdings, replica_id(1), {}, true_header(replica_id(1), {}));
    CHECK(pair.copy(task_of(replica_id(1), 0, replica_id(7), {pair.endpoint()})) == Status::kOk);
    CHECK_EQUAL(pair.bytes_of(replica_id(7), replica_id(1)).size(), 0u);
}

TEST(a_copy_that_is_here_already_says_so) {
    Pair pair;
    const wire::Buffer value = pattern(1000);
    store(*pair.source.holdings, replica_id(1), value, true_header(replica_id(1), value));
    const auto task = task_of(replica_id(1), value.size(), replica_id(7), {pair.endpoint()});
    CHECK(pair.copy(task) == Status::kOk);
    CHECK(pair.copy(task) == Status::kSealed);
    CHECK_EQUAL(pair.target.counts().sealed, 1u);
}

TEST(bytes_that_do_not_match_their_checksum_are_not_sealed) {
    Pair pair;
    wire::Buffer value = pattern(100'000);
    const wire::Buffer header = true_header(replica_id(1), value);
    value[50'000] ^= 1;
    store(*pair.source.holdings, replica_id(1), value, header);
    CHECK(pair.copy(task_of(replica_id(1), value.size(), replica_id(7), {pair.endpoint()})) ==
          Status::kChecksumMismatch);
    pair.nothing_is_left();
}

TEST(another_value_than_was_ordered_is_not_copied) {
    Pair pair;
    const wire::Buffer value = pattern(1000);
    store(*pair.source.holdings, replica_id(1), value, true_header(replica_id(1), value));
    auto other_put = task_of(replica_id(1), value.size(), replica_id(7), {pair.endpoint()});
    other_put.put_id = replica_id(2);
    CHECK(pair.copy(other_put) == Status::kTransferFail);
    CHECK(pair.copy(task_of(replica_id(1), 999, replica_id(8), {pair.endpoint()})) == Status::kTransferFail);
    auto other_key = task_of(replica_id(1), value.size(), replica_id(9), {pair.endpoint()});
    ++other_key.digest;
    CHECK(pair.copy(other_key) == Status::kGone);
    CHECK(pair.copy(task_of(replica_id(3), 1000, replica_id(10), {pair.endpoint()})) == Status::kGone);
    pair.nothing_is_left();
}

TEST(a_target_that_was_retired_or_is_of_an_older_reign_is_refused) {
    Pair pair;
    const wire::Buffer value = pattern(1000);
    store(*pair.source.holdings, replica_id(1), value, true_header(replica_id(1), value));
    pair.target.retire({replica_id(7)});
    CHECK(pair.copy(task_of(replica_id(1), value.size(), replica_id(7), {pair.endpoint()})) ==
          Status::kStaleGrant);
    pair.target.holdings->with_directory([](node::Directory& directory) { directory.adopt(2); });
    CHECK(pair.copy(task_of(replica_id(1), value.size(), replica_id(8), {pair.endpoint()})) ==
          Status::kStaleGrant);
    pair.nothing_is_left();
}

TEST(a_source_is_tried_by_each_of_its_endpoints) {
    Pair pair;
    const wire::Buffer value = pattern(1000);
    store(*pair.source.holdings, replica_id(1), value, true_header(replica_id(1), value));
    const std::vector<std::string> ways{"tcp://127.0.0.1:1", "no address", pair.endpoint()};
    CHECK(pair.copy(task_of(replica_id(1), value.size(), replica_id(7), ways)) == Status::kOk);
    CHECK(pair.copy(task_of(replica_id(1), value.size(), replica_id(8), {ways[0], ways[1]})) ==
          Status::kUnreachable);
}

// Welcomes, and answers a read with a header, half of the bytes, and then nothing.
void answer_half(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes) {
    wire::Buffer body;
    wire::Writer writer(body);
    if (header.verb == wire::Verb::kHello) {
        wire::encode(wire::Welcome{}, writer);
        return connection.send(make_frame(header.verb, header.request_id, body, wire::kFlagReply));
    }
    const wire::Buffer value = pattern(1000);
    const wire::Buffer kept = true_header(replica_id(1), value);
    wire::Piece piece;
    piece.flags = wire::kPieceLast;
    piece.length = value.size();
    piece.metadata_bytes = static_cast<std::uint16_t>(kept.size());
    const std::string_view metadata = wire::as_text(kept);
    wire::encode_read_reply({&piece, 1}, {&metadata, 1}, writer);
    wire::Buffer frame = make_frame(header.verb, header.request_id, body, wire::kFlagReply);
    frame.insert(frame.end(), value.begin(), value.begin() + 500);
    connection.send(std::move(frame));
}

TEST(a_source_that_hangs_amid_the_bytes_costs_its_deadline_and_no_range) {
    Pair pair;
    TestServer hung(answer_half);
    auto task = task_of(replica_id(1), 1000, replica_id(7), {at(hung.port())});
    task.deadline_ms = net::monotonic_ms() + 100;
    CHECK(pair.copy(task) == Status::kDeadline);
    CHECK_EQUAL(pair.target.counts().replicas, 0u);
}

TEST(a_retire_amid_the_bytes_ends_the_copy_and_its_range_returns_after_the_last_of_them) {
    Pair pair;
    TestServer hung(answer_half);
    auto task = task_of(replica_id(1), 1000, replica_id(7), {at(hung.port())});
    task.deadline_ms = net::monotonic_ms() + 500;
    std::atomic<bool> is_over = false;
    pair.copier.fetch(task, [&](Status status) {
        CHECK(status == Status::kDeadline);
        is_over = true;
    });
    wait_until("it is being received", [&] { return pair.target.counts().receiving == 1; });
    CHECK(pair.target.retire({replica_id(7)}).empty());
    wait_until("it is over", [&] { return is_over.load(); });
    CHECK(pair.target.pending_freed() == std::vector<wire::ReplicaId>{replica_id(7)});
}

TEST(a_stop_ends_what_is_under_way_and_what_waits) {
    Pair pair;
    TestServer hung(answer_half);
    std::atomic<int> closed = 0;
    for (std::uint64_t i = 0; i < 10; ++i) {
        pair.copier.fetch(
            task_of(replica_id(1), 1000, replica_id(100 + i), {at(hung.port())}),
            [&](Status status) { closed += status == Status::kClosed || status == Status::kDeadline; });
    }
    wait_until("two are being received", [&] { return pair.target.counts().receiving == 2; });
    pair.copier.stop();
    CHECK_EQUAL(closed.load(), 10);
    CHECK_EQUAL(pair.target.counts().replicas, 0u);
    CHECK(pair.copy(task_of(replica_id(1), 1000, replica_id(7), {})) == Status::kClosed);
}

TEST(more_tasks_than_may_wait_are_answered_busy) {
    Pair pair;
    TestServer hung(answer_half);
    node::CopierOptions options;
    options.threads = 1;
    options.tasks_max = 2;
    node::Copier copier(pair.target.holdings, options);
    std::atomic<int> busy = 0;
    std::atomic<int> answered = 0;
    for (std::uint64_t i = 0; i < 10; ++i) {
        copier.fetch(task_of(replica_id(1), 1000, replica_id(100 + i), {at(hung.port())}),
                     [&](Status status) {
                         busy += status == Status::kBusy;
                         ++answered;
                     });
    }
    CHECK(busy >= 7);  // one is under way by now, or not yet
    copier.stop();
    CHECK_EQUAL(answered.load(), 10);
}

// ---- ordered by a master

wire::Copy order_of(const node::CopyTask& task, wire::SegmentId segment) {
    wire::Copy order;
    order.target = task.target;
    order.segment = segment;
    order.source = task.source;
    order.digest = task.digest;
    order.put_id = task.put_id;
    order.size = task.size;
    order.timeout_ms = 30'000;
    order.endpoints.assign(task.endpoints.begin(), task.endpoints.end());
    return order;
}

TEST(a_node_copies_as_it_is_told_and_answers) {
    ServedMemory source(1u << 20);
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    const wire::Buffer value = pattern(1000);
    store(*source.holdings, replica_id(1), value, true_header(replica_id(1), value));
    const auto task = task_of(replica_id(1), 1000, replica_id(7), {at(source.server->port())});
    master.copy(order_of(task, node.segment()));
    master.journal.wait("copy answered");
    CHECK_EQUAL(master.journal.detail("copy answered"), "OK");
    CHECK_EQUAL(node.counts().sealed, 1u);
    master.copy(order_of(task, node.segment()));
    master.journal.wait("copy answered", 2);
    CHECK_EQUAL(master.journal.detail("copy answered"), "SEALED");
    CHECK_EQUAL(node.counts().sealed, 1u);
}

TEST(a_copy_of_an_older_master_is_refused) {
    ScriptedMaster master(0, 2);
    ControlledNode node(master.port());
    node.mounted();
    const auto task = task_of(replica_id(1), 1000, replica_id(7), {"tcp://127.0.0.1:1"});
    master.copy(order_of(task, node.segment()), 1);
    master.journal.wait("copy refused");
    CHECK_EQUAL(master.journal.detail("copy refused"), "STALE_EPOCH");
}

TEST(a_copy_that_is_told_twice_is_answered_once_while_it_runs) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    TestServer hung(answer_half);
    auto order = order_of(task_of(replica_id(1), 1000, replica_id(7), {}), node.segment());
    const std::string way = at(hung.port());
    order.endpoints = {way};
    order.timeout_ms = 300;
    master.copy(order);
    master.copy(order);
    master.journal.wait("copy answered");
    CHECK_EQUAL(master.journal.detail("copy answered"), "DEADLINE");
    master.copy(order);
    master.journal.wait("copy answered", 2);
    CHECK_EQUAL(master.journal.count("copy answered"), 2);
    CHECK_EQUAL(node.control->status().copies_ordered_total, 2u);
}

TEST(a_copy_that_ends_while_no_master_listens_is_answered_to_the_next_one_that_does) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    TestServer hung(answer_half);
    auto order = order_of(task_of(replica_id(1), 1000, replica_id(7), {}), node.segment());
    const std::string way = at(hung.port());
    order.endpoints = {way};
    order.timeout_ms = 300;
    master.copy(order);
    wait_until("it is under way", [&] { return node.control->status().copies_ordered_total == 1; });
    master.change([&] { master.mount_status = Status::kBusy; });
    master.cut();
    const std::uint64_t over = net::monotonic_ms() + 2 * order.timeout_ms;
    wait_until("it ended", [&] { return net::monotonic_ms() > over; });
    CHECK_EQUAL(master.journal.count("copy answered"), 0);
    master.change([&] { master.mount_status = Status::kOk; });
    master.journal.wait("copy answered");
    CHECK_EQUAL(master.journal.detail("copy answered"), "DEADLINE");
}

// ---- leaving

TEST(a_node_that_stops_serves_until_nothing_is_left_to_hand_over) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    node.write(replica_id(1));
    master.change([&] {
        master.left_to_move = 3;
        master.on_unmount = [&] {
            CHECK(node.open(replica_id(1)).reference == nullptr);  // from before the master forgets it
        };
    });
    std::thread stopping([&] { node.control->stop(kHangMs); });
    master.journal.wait("drain", 3);
    const auto view = node.open(replica_id(1));
    CHECK(view.reference != nullptr);
    CHECK_EQUAL(master.journal.count("unmount"), 0);
    master.change([&] {
        master.left_to_move = 0;
        master.moved = 5;
    });
    stopping.join();
    CHECK_EQUAL(master.journal.count("unmount"), 1);
    CHECK_EQUAL(node.control->status().handed_over_total, 5u);
    CHECK_EQUAL(node.counts().references, 1u);  // who reads already reads on
    node.close(view);
    CHECK_EQUAL(node.counts().replicas, 0u);
}

TEST(a_node_that_stops_waits_for_a_handover_no_longer_than_it_was_told) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    master.change([&] { master.left_to_move = 3; });
    const std::uint64_t began = net::monotonic_ms();
    node.control->stop(200);
    CHECK(net::monotonic_ms() - began >= 200);
    CHECK_EQUAL(master.journal.count("unmount"), 1);
}

TEST(a_node_stops_without_a_handover_where_none_is_wanted_or_the_master_knows_none) {
    for (const bool wanted : {false, true}) {
        ScriptedMaster master;
        ControlledNode node(master.port());
        node.mounted();
        master.change([&] { master.drain_status = Status::kNotSupported; });
        node.control->stop(wanted ? kHangMs : 0);
        CHECK_EQUAL(master.journal.count("drain"), 0);
        CHECK_EQUAL(master.journal.count("unmount"), 1);
    }
}

TEST(a_node_that_stops_gives_up_when_its_master_goes) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    master.change([&] { master.left_to_move = 3; });
    std::thread stopping([&] { node.control->stop(kHangMs); });
    master.journal.wait("drain", 2);
    master.stop();
    stopping.join();  // a hang fails by the test's own limit
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv); }
