// The data server over real sockets: batches, references, half-finished peers and hostile bytes.
#include "node_harness.h"

namespace {

using namespace harness;
using wire::Status;

constexpr std::uint64_t kMiB = 1u << 20;

TEST(a_batch_of_all_sizes_comes_back_as_it_was_written) {
    ServedMemory memory(64 * kMiB);
    DataClient client(memory.server->port());
    std::vector<wire::ReplicaId> replicas;
    std::vector<wire::Buffer> values;
    std::vector<wire::ReadItem> items;
    std::uint64_t counter = 0;
    for (const std::uint64_t size :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{4096}, kMiB, 20 * kMiB + 7,
          std::uint64_t{3}, 8 * kMiB, std::uint64_t{0}}) {
        replicas.push_back(replica_id(++counter));
        values.push_back(pattern(size, static_cast<std::uint32_t>(counter)));
        items.push_back(read_item(replicas.back()));
    }
    for (const Status status : client.write(replicas, values, "dtype")) CHECK(status == Status::kOk);
    for (int round = 0; round < 2; ++round) {
        const auto read = client.read(items, round == 0 ? std::uint32_t{wire::kReadUserMetadata} : 0u);
        for (std::size_t i = 0; i < values.size(); ++i) {
            CHECK(read[i].status == Status::kOk);
            CHECK(read[i].bytes == values[i]);
            CHECK_EQUAL(read[i].metadata, round == 0 ? "dtype" : "");
            CHECK_EQUAL(read[i].verdict.has_checksum, 1);
            CHECK_EQUAL(read[i].verdict.checksum, static_cast<std::uint32_t>(replicas[i] * 3));
        }
    }
    wait_until("no reference is left", [&] { return memory.counts().references == 0; });
}

wire::ReadItem part_of(wire::ReplicaId replica, std::uint64_t offset, std::uint64_t length) {
    wire::ReadItem item = read_item(replica);
    item.offset = offset;
    item.length = length;
    return item;
}

TEST(parts_come_with_checksums_of_their_own_once_the_value_was_checked) {
    ServedMemory memory(64 * kMiB);
    DataClient client(memory.server->port());
    client.has_true_checksums = true;
    const std::vector<wire::Buffer> values{pattern(100'000, 1), pattern(5 * kMiB, 2)};
    for (const Status status : client.write({replica_id(1), replica_id(2)}, values)) CHECK(status == Status::kOk);
    const std::vector<wire::ReadItem> items{
        part_of(replica_id(1), 0, 10),       part_of(replica_id(1), 99'990, 100), part_of(replica_id(2), 7, kMiB),
        part_of(replica_id(9), 0, 10),       part_of(replica_id(2), 100, 0),      part_of(replica_id(1), 100'001, 1),
        part_of(replica_id(1), 0, 1u << 20),
    };
    const auto read = client.read(items, wire::kReadVerified);
    const std::vector<Status> expected{Status::kOk, Status::kOk, Status::kOk,          Status::kGone,
                                       Status::kOk, Status::kInvalidParams, Status::kOk};
    for (std::size_t i = 0; i < items.size(); ++i) {
        CHECK(read[i].status == expected[i]);
        if (expected[i] != Status::kOk) continue;
        const wire::Buffer& value = values[items[i].replica == replica_id(1) ? 0 : 1];
        const std::uint64_t end = std::min<std::uint64_t>(items[i].offset + items[i].length, value.size());
        CHECK(read[i].bytes == wire::Buffer(value.begin() + static_cast<std::ptrdiff_t>(items[i].offset),
                                            value.begin() + static_cast<std::ptrdiff_t>(end)));
        CHECK_EQUAL(read[i].verdict.checksum, wire::crc32c(0, read[i].bytes.data(), read[i].bytes.size()));
    }
    wait_until("no reference is left", [&] { return memory.counts().references == 0; });
}

// The byte that is damaged is not in the part: nobody but the node can see it.
TEST(no_part_of_a_damaged_value_is_given_away) {
    ServedMemory memory(kMiB);
    DataClient client(memory.server->port());
    client.has_true_checksums = true;
    CHECK(client.write_one(replica_id(1), pattern(10'000, 1)) == Status::kOk);
    memory.holdings->segment(0).data()[9'000] ^= 1;
    const std::vector<wire::ReadItem> items{part_of(replica_id(1), 10, 100), part_of(replica_id(1), 0, 1)};
    for (const auto& one : client.read(items, wire::kReadVerified)) {
        CHECK(one.status == Status::kChecksumMismatch);
        CHECK(one.bytes.empty());
    }
    CHECK(client.read(items)[0].status == Status::kOk);
}

TEST(a_node_checks_only_so_much_for_one_request) {
    ServedMemory memory(128 * kMiB);
    DataClient client(memory.server->port());
    client.has_true_checksums = true;
    const std::vector<wire::Buffer> values{pattern(20 * kMiB, 1), pattern(20 * kMiB, 2), pattern(33 * kMiB, 3)};
    for (const Status status : client.write({replica_id(1), replica_id(2), replica_id(3)}, values)) {
        CHECK(status == Status::kOk);
    }
    const auto read = client.read({part_of(replica_id(1), 0, 10), part_of(replica_id(1), 0, 10),
                                   part_of(replica_id(2), 0, 10), part_of(replica_id(1), 0, 13 * kMiB),
                                   part_of(replica_id(3), 0, 10)},
                                  wire::kReadVerified);
    const std::vector<Status> expected{Status::kOk, Status::kOk, Status::kValueTooLarge, Status::kValueTooLarge,
                                       Status::kValueTooLarge};
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(read[i].status == expected[i]);
}

TEST(a_batch_of_thousands_of_small_values_is_cut_into_chunks) {
    ServedMemory memory(32 * kMiB);
    DataClient client(memory.server->port());
    std::vector<wire::ReplicaId> replicas;
    std::vector<wire::Buffer> values;
    std::vector<wire::ReadItem> items;
    for (std::uint32_t i = 1; i <= 5000; ++i) {
        replicas.push_back(replica_id(i));
        values.push_back(pattern(4096, i));
        items.push_back(read_item(replicas.back()));
    }
    for (const Status status : client.write(replicas, values)) CHECK(status == Status::kOk);
    const auto read = client.read(items);
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(read[i].bytes == values[i]);
    wait_until("no reference is left", [&] { return memory.counts().references == 0; });
}

TEST(a_small_reply_is_one_frame_and_so_is_that_of_a_missing_value) {
    ServedMemory memory(kMiB);
    DataClient client(memory.server->port());
    CHECK(client.write_one(replica_id(1), pattern(4096)) == Status::kOk);
    client.ask_read({read_item(replica_id(1)), read_item(replica_id(2))});
    wire::Bytes body;
    const auto header = client.take_frame(body);
    CHECK(!header.has_more());
    std::vector<Value> values(2);
    CHECK(client.take_chunk(header, body, values));
    CHECK(values[0].bytes == pattern(4096));
    CHECK(values[1].status == Status::kGone);
    CHECK_EQUAL(memory.counts().references, 0u);
}

TEST(gone_and_foreign_digests_leave_the_rest_of_the_batch_alone) {
    ServedMemory memory(8 * kMiB);
    DataClient client(memory.server->port());
    CHECK(client.write_one(replica_id(1), pattern(kMiB, 1)) == Status::kOk);
    CHECK(client.write_one(replica_id(2), pattern(kMiB, 2)) == Status::kOk);
    CHECK(client.write_one(replica_id(3), pattern(kMiB, 3)) == Status::kOk);
    memory.retire({replica_id(2)});
    wire::ReadItem foreign = read_item(replica_id(3));
    foreign.digest = wire::key_digest("another tenant", key_of(replica_id(3)));
    const auto read = client.read({read_item(replica_id(9)), read_item(replica_id(1)),
                                   read_item(replica_id(2)), foreign, read_item(replica_id(3))});
    CHECK(read[0].status == Status::kGone);
    CHECK(read[1].bytes == pattern(kMiB, 1));
    CHECK(read[2].status == Status::kGone && read[2].bytes.empty());
    CHECK(read[3].status == Status::kGone && read[3].bytes.empty());
    CHECK(read[4].bytes == pattern(kMiB, 3));
    CHECK_EQUAL(memory.counts().digest_mismatches, 1u);
    CHECK_EQUAL(memory.counts().gone, 2u);
}

TEST(a_part_of_a_value_is_read_and_what_lies_beyond_it_is_refused) {
    ServedMemory memory(8 * kMiB);
    DataClient client(memory.server->port());
    const auto value = pattern(200'000);
    CHECK(client.write_one(replica_id(1), value) == Status::kOk);
    const auto part = [&](std::uint64_t offset, std::uint64_t length) {
        wire::ReadItem item = read_item(replica_id(1));
        item.offset = offset;
        item.length = length;
        return item;
    };
    const std::uint64_t all = ~std::uint64_t{0};
    const auto read = client.read({part(100, 1000), part(199'999, all), part(200'000, all), part(0, 0),
                                   part(200'001, 1), part(all, all), part(1, 190'000)});
    CHECK(read[0].bytes == wire::Buffer(value.begin() + 100, value.begin() + 1100));
    CHECK(read[1].bytes == wire::Buffer(value.end() - 1, value.end()));
    CHECK(read[2].status == Status::kOk && read[2].bytes.empty());
    CHECK(read[3].status == Status::kOk && read[3].bytes.empty());
    CHECK(read[4].status == Status::kInvalidParams);
    CHECK(read[5].status == Status::kInvalidParams);
    CHECK(read[6].bytes == wire::Buffer(value.begin() + 1, value.begin() + 190'001));
}

TEST(refused_values_of_a_batch_are_discarded_and_the_others_written) {
    ServedMemory memory(4 * kMiB);
    DataClient client(memory.server->port());
    CHECK(client.write_one(replica_id(1), pattern(1000, 1)) == Status::kOk);
    memory.retire({replica_id(2)});
    const auto statuses = client.write(
        {replica_id(1), replica_id(2), replica_id(3), replica_id(4), replica_id(4), replica_id(5)},
        {pattern(1000, 9), pattern(70'000, 2), pattern(3000, 3), pattern(5 * kMiB, 4), pattern(10, 5),
         pattern(500, 6)});
    CHECK(statuses[0] == Status::kSealed);
    CHECK(statuses[1] == Status::kStaleGrant);
    CHECK(statuses[2] == Status::kOk);
    CHECK(statuses[3] == Status::kNoRange);
    CHECK(statuses[4] == Status::kOk);
    CHECK(statuses[5] == Status::kOk);
    const auto read = client.read({read_item(replica_id(1)), read_item(replica_id(3)),
                                   read_item(replica_id(4)), read_item(replica_id(5))});
    CHECK(read[0].bytes == pattern(1000, 1));
    CHECK(read[1].bytes == pattern(3000, 3));
    CHECK(read[2].bytes == pattern(10, 5));
    CHECK(read[3].bytes == pattern(500, 6));
}

TEST(grants_of_another_reign_or_segment_are_refused) {
    ServedMemory memory(kMiB);
    DataClient client(memory.server->port());
    memory.holdings->with_directory([](node::Directory& directory) { directory.adopt(2); });
    CHECK(client.write_one(replica_id(1), pattern(100)) == Status::kStaleGrant);
    const auto later = wire::make_id(2, 1);
    CHECK(client.write({later}, {pattern(100)}, {}, 1).at(0) == Status::kStaleGrant);
    CHECK(client.write({later}, {pattern(100)}, {}, 2, kSegment + 1).at(0) == Status::kStaleGrant);
    CHECK(client.write({later}, {pattern(100)}, {}, 2).at(0) == Status::kOk);
}

TEST(a_node_that_hears_no_master_refuses_reads_and_writes) {
    ServedMemory memory(kMiB);
    DataClient client(memory.server->port());
    CHECK(client.write_one(replica_id(1), pattern(100)) == Status::kOk);
    memory.holdings->heard_master(net::boottime_ms() - 10'000, 10'000);
    CHECK(client.read({read_item(replica_id(1))})[0].status == Status::kGone);
    CHECK(client.write_one(replica_id(2), pattern(100)) == Status::kStaleGrant);
    memory.holdings->heard_master(net::boottime_ms(), 10'000);
    CHECK(client.read({read_item(replica_id(1))})[0].bytes == pattern(100));
}

// Half of a value, then silence or an end: the range returns only then.
struct HalfWrite {
    explicit HalfWrite(ServedMemory& memory) : peer(memory.server->port()) {
        wire::Hello hello;
        hello.role = wire::Role::kData;
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode(hello, writer);
        peer.send(make_frame(wire::Verb::kHello, 1, body));
        peer.receive_frame();
        const auto header = header_of(replica_id(1), kMiB);
        const wire::WriteItem item{replica_id(1), kSegment, kMiB, static_cast<std::uint32_t>(header.size()),
                                   0};
        wire::Buffer write;
        wire::Writer items(write);
        wire::encode_write({&item, 1}, {&header, 1}, items);
        wire::Buffer frame = make_frame(wire::Verb::kWrite, 2, write);
        wire::FrameHeader frame_header = *wire::parse_frame_header(frame);
        frame_header.epoch = 1;
        std::memcpy(frame.data(), &frame_header, sizeof frame_header);
        peer.send(frame);
        peer.send(pattern(kMiB / 2));
        wait_until("the write is received", [&] { return memory.counts().receiving == 1; });
    }
    RawPeer peer;
};

TEST(a_write_whose_connection_ends_gives_its_range_back) {
    ServedMemory memory(4 * kMiB);
    {
        HalfWrite write(memory);
        CHECK_EQUAL(memory.counts().used_bytes, kMiB);
        write.peer.reset();
    }
    wait_until("the range is free", [&] { return memory.counts().used_bytes == 0; });
    DataClient client(memory.server->port());
    CHECK(client.write_one(replica_id(1), pattern(kMiB, 5)) == Status::kOk);
}

TEST(a_write_that_stalls_is_cancelled) {
    node::DataServerOptions options;
    options.limits.payload_stall_ms = 1'000;
    ServedMemory memory(4 * kMiB, options);
    HalfWrite write(memory);
    wait_until("the range is free", [&] { return memory.counts().used_bytes == 0; });
    write.peer.receive_to_end();
}

TEST(a_write_overtaken_by_its_retire_is_refused_and_its_range_reported_freed) {
    ServedMemory memory(4 * kMiB);
    HalfWrite write(memory);
    CHECK(memory.retire({replica_id(1)}).empty());
    CHECK(memory.pending_freed().empty());
    write.peer.send(pattern(kMiB / 2));
    const auto [header, body] = write.peer.receive_frame();
    CHECK(wire::ok(header.status));
    CHECK(wire::parse_statuses(body)->at(0) == Status::kStaleGrant);
    CHECK(memory.pending_freed() == std::vector<wire::ReplicaId>{replica_id(1)});
    CHECK_EQUAL(memory.counts().used_bytes, 0u);
}

TEST(a_slow_reader_of_a_retired_value_gets_its_bytes_and_the_range_returns_afterwards) {
    ServedMemory memory(64 * kMiB);
    DataClient client(memory.server->port());
    DataClient other(memory.server->port(), 2);
    const auto value = pattern(48 * kMiB);
    CHECK(client.write_one(replica_id(1), value) == Status::kOk);
    client.ask_read({read_item(replica_id(1))});
    wait_until("the reader holds a reference", [&] { return memory.counts().references == 1; });
    CHECK(memory.retire({replica_id(1)}).empty());
    CHECK(other.write_one(replica_id(2), pattern(32 * kMiB, 2)) == Status::kNoRange);
    CHECK(other.read({read_item(replica_id(1))})[0].status == Status::kGone);
    const auto read = client.take_values(1);
    CHECK(read[0].status == Status::kOk);
    CHECK(read[0].bytes == value);
    wait_until("the range is free", [&] { return memory.counts().used_bytes == 0; });
    CHECK(memory.pending_freed() == std::vector<wire::ReplicaId>{replica_id(1)});
    CHECK(other.write_one(replica_id(2), pattern(32 * kMiB, 2)) == Status::kOk);
}

TEST(a_reference_is_held_until_the_last_queued_byte_is_sent) {
    ServedMemory memory(64 * kMiB);
    DataClient client(memory.server->port());
    // Two chunks, both queued at once, and more than sockets hold.
    const auto value = pattern(15 * kMiB);
    CHECK(client.write_one(replica_id(1), value) == Status::kOk);
    client.ask_read({read_item(replica_id(1))});
    wait_until("the reader holds a reference", [&] { return memory.counts().references == 1; });
    CHECK(memory.retire({replica_id(1)}).empty());
    CHECK(client.take_values(1)[0].bytes == value);
    wait_until("the range is free", [&] { return memory.counts().used_bytes == 0; });
}

TEST(a_reader_that_goes_away_amid_its_answer_gives_its_references_back) {
    ServedMemory memory(64 * kMiB);
    DataClient writer(memory.server->port(), 2);
    CHECK(writer.write({replica_id(1), replica_id(2)}, {pattern(30 * kMiB, 1), pattern(30 * kMiB, 2)})[1] ==
          Status::kOk);
    {
        DataClient client(memory.server->port());
        client.ask_read({read_item(replica_id(1)), read_item(replica_id(2)), read_item(replica_id(1))});
        wait_until("the reader holds references", [&] { return memory.counts().references == 3; });
        CHECK(memory.retire({replica_id(1), replica_id(2)}).empty());
    }
    wait_until("the references are gone", [&] { return memory.counts().used_bytes == 0; });
    CHECK_EQUAL(memory.pending_freed().size(), 2u);
}

TEST(a_reader_that_takes_nothing_is_cut_off) {
    node::DataServerOptions options;
    options.limits.send_stall_ms = 1'000;
    ServedMemory memory(64 * kMiB, options);
    DataClient client(memory.server->port());
    CHECK(client.write_one(replica_id(1), pattern(48 * kMiB)) == Status::kOk);
    client.ask_read({read_item(replica_id(1))});
    wait_until("the reader holds a reference", [&] { return memory.counts().references == 1; });
    wait_until("it is cut off", [&] { return memory.counts().references == 0; });
}

TEST(a_ping_waits_for_chunks_and_not_for_the_whole_batch) {
    ServedMemory memory(64 * kMiB);
    DataClient client(memory.server->port());
    CHECK(client.write_one(replica_id(1), pattern(60 * kMiB)) == Status::kOk);
    client.ask_read({read_item(replica_id(1))});
    wait_until("the read has begun", [&] { return memory.counts().references == 1; });
    client.send(wire::Verb::kPing, {});
    std::vector<Value> values(1);
    bool read_done = false;
    bool ping_done = false;
    while (!read_done) {
        wire::Bytes body;
        const auto header = client.take_frame(body);
        if (header.verb == wire::Verb::kPing) {
            ping_done = true;
        } else {
            read_done = client.take_chunk(header, body, values);
        }
    }
    CHECK(ping_done);
    CHECK(values[0].bytes == pattern(60 * kMiB));
}

TEST(one_peer_in_excess_of_its_bytes_is_told_busy_and_others_are_served) {
    node::DataServerOptions options;
    options.peer_bytes_max = 40 * kMiB;
    ServedMemory memory(64 * kMiB, options);
    DataClient slow(memory.server->port(), 1);
    DataClient same(memory.server->port(), 1);
    DataClient other(memory.server->port(), 2);
    CHECK(slow.write_one(replica_id(1), pattern(48 * kMiB)) == Status::kOk);  // alone it may exceed the bound
    CHECK(other.write_one(replica_id(2), pattern(4 * kMiB)) == Status::kOk);
    slow.ask_read({read_item(replica_id(1))});
    wait_until("the read has begun", [&] { return memory.counts().references == 1; });
    same.ask_read({read_item(replica_id(2))});
    wire::Bytes body;
    CHECK(same.take_frame(body).status == Status::kBusy);
    CHECK(same.write_one(replica_id(3), pattern(4 * kMiB)) == Status::kBusy);
    CHECK_EQUAL(memory.counts().references, 1u);
    CHECK(other.read({read_item(replica_id(2))})[0].bytes == pattern(4 * kMiB));
    CHECK(slow.take_values(1)[0].bytes == pattern(48 * kMiB));
    wait_until("the bytes are no longer in flight", [&] { return memory.counts().references == 0; });
    CHECK(same.write_one(replica_id(3), pattern(4 * kMiB)) == Status::kOk);
    CHECK(same.read({read_item(replica_id(2))})[0].bytes == pattern(4 * kMiB));
}

TEST(requests_may_be_pipelined_on_one_connection) {
    ServedMemory memory(32 * kMiB);
    DataClient client(memory.server->port());
    for (std::uint32_t i = 1; i <= 20; ++i) client.ask_write({replica_id(i)}, {pattern(100'000, i)});
    for (std::uint32_t i = 1; i <= 20; ++i) client.ask_read({read_item(replica_id(i))});
    for (std::uint32_t i = 1; i <= 20; ++i) CHECK(client.take_statuses().at(0) == Status::kOk);
    for (std::uint32_t i = 1; i <= 20; ++i) CHECK(client.take_values(1)[0].bytes == pattern(100'000, i));
}

wire::Buffer hello_frame(std::uint16_t version, wire::Role role) {
    wire::Hello hello;
    hello.version_min = hello.version_max = version;
    hello.role = role;
    hello.software = "test 9";
    wire::Buffer body;
    wire::Writer writer(body);
    wire::encode(hello, writer);
    return make_frame(wire::Verb::kHello, 1, body);
}

std::string refusal_text(const wire::Buffer& body) {
    wire::Reader reader(body);
    return std::string(reader.text16(4096));
}

TEST(hellos_of_another_version_or_role_are_refused_with_the_reason) {
    ServedMemory memory(kMiB);
    RawPeer old(memory.server->port());
    old.send(hello_frame(7, wire::Role::kData));
    const auto [header, body] = old.receive_frame();
    CHECK(header.status == Status::kVersionMismatch);
    CHECK(refusal_text(body).find("test 9 speaks 7-7") != std::string::npos);
    CHECK(refusal_text(body).find("speaks 1-1") != std::string::npos);
    old.receive_to_end();
    RawPeer lane(memory.server->port());
    lane.send(hello_frame(1, wire::Role::kClient));
    CHECK(lane.receive_frame().first.status == Status::kIllegalClient);
    lane.receive_to_end();
    RawPeer mute(memory.server->port());
    mute.send(make_frame(wire::Verb::kRead, 1, {}));
    CHECK(mute.receive_frame().first.status == Status::kMalformed);
    mute.receive_to_end();
}

TEST(hostile_bytes_end_their_connection_and_nothing_else) {
    ServedMemory memory(4 * kMiB);
    DataClient client(memory.server->port());
    CHECK(client.write_one(replica_id(1), pattern(1000)) == Status::kOk);
    for (std::uint32_t seed = 1; seed <= 50; ++seed) {
        RawPeer peer(memory.server->port());
        if (seed % 2 == 0) {
            peer.send(hello_frame(1, wire::Role::kData));
            peer.receive_frame();
        }
        if (seed % 5 == 0) {
            // A sound frame round a body that is noise.
            const auto verb = seed % 10 == 0 ? wire::Verb::kRead : wire::Verb::kWrite;
            peer.send(make_frame(verb, 3, pattern(seed * 7, seed)));
        } else {
            peer.send(pattern(400, seed));
        }
        peer.receive_to_end();
    }
    CHECK_EQUAL(memory.stat("malformed_total"), 50u);
    CHECK(client.read({read_item(replica_id(1))})[0].bytes == pattern(1000));
    CHECK_EQUAL(memory.counts().references, 0u);
    CHECK_EQUAL(memory.counts().replicas, 1u);
}

TEST(a_write_of_a_claimed_terabyte_takes_no_memory) {
    ServedMemory memory(4 * kMiB);
    RawPeer peer(memory.server->port());
    peer.send(hello_frame(1, wire::Role::kData));
    peer.receive_frame();
    const std::uint64_t size = wire::kValueBytesMax;
    const auto header = header_of(replica_id(1), size);
    std::vector<wire::WriteItem> items(
        100, {replica_id(1), kSegment, size, static_cast<std::uint32_t>(header.size()), 0});
    std::vector<wire::Buffer> headers(100, header);
    wire::Buffer body;
    wire::Writer writer(body);
    wire::encode_write(items, headers, writer);
    peer.send(make_frame(wire::Verb::kWrite, 2, body));
    peer.send(pattern(100'000));
    peer.reset();
    DataClient client(memory.server->port());
    CHECK(client.ping() == Status::kOk);
    CHECK_EQUAL(memory.counts().used_bytes, 0u);
}

TEST(a_write_longer_than_any_value_is_malformed) {
    const auto parses = [](std::uint64_t size) {
        const auto header = header_of(replica_id(1), size);
        const wire::WriteItem item{replica_id(1), kSegment, size, static_cast<std::uint32_t>(header.size()),
                                   0};
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode_write({&item, 1}, {&header, 1}, writer);
        return wire::parse_write(body).has_value();
    };
    CHECK(parses(wire::kValueBytesMax));
    CHECK(!parses(wire::kValueBytesMax + 1));
    CHECK(!parses(~std::uint64_t{0}));
}

TEST(stopping_ends_transfers_and_gives_everything_back) {
    ServedMemory memory(64 * kMiB);
    DataClient client(memory.server->port());
    CHECK(client.write_one(replica_id(9), pattern(48 * kMiB)) == Status::kOk);
    HalfWrite write(memory);
    client.ask_read({read_item(replica_id(9))});
    wait_until("the read has begun", [&] { return memory.counts().references == 1; });
    memory.server->stop();
    CHECK_EQUAL(memory.counts().references, 0u);
    CHECK_EQUAL(memory.counts().receiving, 0u);
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv); }
