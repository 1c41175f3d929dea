// What a process of the same host may do with a node's memory over its Unix socket: map it for reading, and
// take references that only close, or the end of its own end, gives back.
#include <sys/mman.h>
#include <unistd.h>

#include "net/local_socket.h"
#include "net/random.h"
#include "node_harness.h"
#include "wire/shared_memory.h"

namespace {

using namespace harness;
using namespace mooncake;
using wire::Status;

constexpr std::uint64_t kMemoryBytes = 1u << 20;  // so that views cover at most 128 KiB

struct Local {
    Local() : memory(kMemoryBytes, options(name)) {}
    static node::DataServerOptions options(const std::string& name) {
        node::DataServerOptions options;
        options.local_name = name;
        options.threads = 1;
        return options;
    }
    std::unique_ptr<net::ClientSocket> dial(std::string& why, std::string_view tenant = {}) {
        wire::Hello hello;
        hello.role = wire::Role::kData;
        hello.process[0] = 9;
        hello.tenant = tenant;
        net::ClientDial dial({"local", 1}, net::dial_local(name), hello, net::monotonic_ms() + kHangMs);
        dial.share_memory(nullptr);
        Status status{};
        return net::ClientSocket::connect(dial, net::monotonic_ms() + kHangMs, why, status);
    }

    const std::string name = "mooncake-test-" + std::to_string(net::random_seed());
    ServedMemory memory;
};

// One client of it.
struct Viewer {
    explicit Viewer(Local& of) : local(of) {
        std::string why;
        socket = local.dial(why);
        CHECK_EQUAL(why, "");
        CHECK(socket && socket->memory());
    }
    void send(wire::Verb verb, const wire::Buffer& body) {
        wire::Buffer frame = make_frame(verb, socket->next_request_id(), body);
        std::vector<iovec> pieces{{frame.data(), frame.size()}};
        CHECK(socket->send_all(pieces, net::monotonic_ms() + kHangMs) == net::IoResult::kDone);
    }
    wire::FrameHeader take(wire::Bytes& body) {
        wire::FrameHeader header;
        CHECK(socket->receive_frame(header, body, net::monotonic_ms() + kHangMs) == net::IoResult::kDone);
        return header;
    }
    std::vector<wire::Opened> open(const std::vector<wire::ReadItem>& items, std::uint32_t flags = 0) {
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode_read(flags, items, writer);
        send(wire::Verb::kOpen, body);
        wire::Bytes answer;
        CHECK(wire::ok(take(answer).status));
        const auto reply = wire::parse_open_reply(answer);
        CHECK(reply.has_value());
        metadata.assign(reply->metadata.begin(), reply->metadata.end());
        return reply->items;
    }
    void close(const std::vector<std::uint64_t>& references) {
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode_close(references, writer);
        send(wire::Verb::kClose, body);
    }
    wire::Buffer bytes_of(const wire::Opened& opened) {
        const auto* from = socket->memory()->at(opened.segment, opened.offset, opened.size);
        CHECK(from != nullptr);
        return {from, from + opened.size};
    }

    Local& local;
    std::unique_ptr<net::ClientSocket> socket;
    std::vector<std::string> metadata;
};

wire::Buffer value_of(std::uint8_t seed, std::size_t size) {
    wire::Buffer value(size);
    for (std::size_t i = 0; i < size; ++i) value[i] = static_cast<std::uint8_t>(seed + i * 7 + (i >> 8));
    return value;
}

void store(Local& local, std::uint64_t number, const wire::Buffer& value) {
    DataClient writer(local.memory.server->port());
    CHECK(writer.write({replica_id(number)}, {value}, "float16").at(0) == Status::kOk);
}

TEST(a_value_is_looked_at_where_it_lies) {
    Local local;
    const auto value = value_of(1, 5000);
    store(local, 1, value);
    Viewer viewer(local);
    const auto opened = viewer.open({read_item(replica_id(1))}, wire::kReadUserMetadata).at(0);
    CHECK(opened.status == Status::kOk && opened.has_checksum == 1);
    CHECK(viewer.bytes_of(opened) == value);
    CHECK_EQUAL(viewer.metadata.at(0), "float16");
    CHECK_EQUAL(local.memory.counts().references, 1u);
}

TEST(a_range_returns_only_when_the_last_reference_is_closed) {
    Local local;
    const auto value = value_of(2, 5000);
    store(local, 1, value);
    Viewer viewer(local);
    const auto first = viewer.open({read_item(replica_id(1))}).at(0);
    const auto second = viewer.open({read_item(replica_id(1))}).at(0);
    CHECK(local.memory.retire({replica_id(1)}).empty());
    CHECK(viewer.open({read_item(replica_id(1))}).at(0).status == Status::kGone);
    for (std::uint64_t other = 2; other < 100; ++other) store(local, other, value_of(3, 9000));
    CHECK(viewer.bytes_of(first) == value);
    viewer.close({first.reference});
    CHECK(viewer.open({read_item(replica_id(1))}).at(0).status == Status::kGone);  // the close was heard
    CHECK_EQUAL(local.memory.counts().draining, 1u);
    CHECK(viewer.bytes_of(second) == value);
    viewer.close({second.reference});
    wait_until("the range returned", [&] { return local.memory.counts().draining == 0; });
}

TEST(who_ends_gives_all_references_back) {
    Local local;
    store(local, 1, value_of(4, 100));
    {
        Viewer viewer(local);
        viewer.open({read_item(replica_id(1)), read_item(replica_id(1))});
        CHECK_EQUAL(local.memory.counts().references, 2u);
    }
    wait_until("the references returned", [&] { return local.memory.counts().references == 0; });
    CHECK_EQUAL(local.memory.server->held_references(), 0u);
}

TEST(views_of_a_connection_cover_an_eighth_of_the_memory_at_most) {
    Local local;
    store(local, 1, value_of(5, 100u << 10));
    store(local, 2, value_of(6, 100u << 10));
    Viewer viewer(local);
    const auto opened = viewer.open({read_item(replica_id(1)), read_item(replica_id(2))});
    CHECK(opened.at(0).status == Status::kOk);
    CHECK(opened.at(1).status == Status::kBusy && opened.at(1).reference == 0);
    viewer.close({opened.at(0).reference});
    CHECK(viewer.open({read_item(replica_id(2))}).at(0).status == Status::kOk);
}

TEST(another_key_and_an_unknown_id_are_gone) {
    Local local;
    store(local, 1, value_of(7, 100));
    Viewer viewer(local);
    auto stranger = read_item(replica_id(1));
    ++stranger.digest;
    const auto opened = viewer.open({stranger, read_item(replica_id(77))});
    CHECK(opened.at(0).status == Status::kGone && opened.at(1).status == Status::kGone);
    CHECK_EQUAL(local.memory.counts().references, 0u);
}

// A range that is looked at must not return because of something that its reader sent.
TEST(a_reference_that_was_never_given_is_malformed) {
    Local local;
    store(local, 1, value_of(8, 100));
    Viewer viewer(local);
    const auto opened = viewer.open({read_item(replica_id(1))}).at(0);
    viewer.close({opened.reference, opened.reference});
    wire::Bytes body;
    CHECK(viewer.take(body).status == Status::kMalformed);
    CHECK_EQUAL(local.memory.counts().references, 0u);
}

TEST(a_connection_with_views_is_only_not_served_any_more) {
    Local local;
    const auto value = value_of(8, 5000);
    store(local, 1, value);
    Viewer viewer(local);
    const auto opened = viewer.open({read_item(replica_id(1))}).at(0);
    wire::Buffer garbage(64, 0xEE);
    std::vector<iovec> pieces{{garbage.data(), garbage.size()}};
    CHECK(viewer.socket->send_all(pieces, net::monotonic_ms() + kHangMs) == net::IoResult::kDone);
    wire::FrameHeader header;
    wire::Bytes body;
    CHECK(viewer.socket->receive_frame(header, body, net::monotonic_ms() + kHangMs) == net::IoResult::kClosed);
    store(local, 2, value_of(3, 100));  // the one loop that serves all has gone on
    CHECK(local.memory.retire({replica_id(1)}).empty());
    CHECK_EQUAL(local.memory.counts().references, 1u);
    CHECK(viewer.bytes_of(opened) == value);
    viewer.socket.reset();
    wait_until("the range returned", [&] { return local.memory.counts().draining == 0; });
}

TEST(a_mapping_outlives_its_node) {
    auto local = std::make_unique<Local>();
    const auto value = value_of(9, 5000);
    store(*local, 1, value);
    Viewer viewer(*local);
    const auto opened = viewer.open({read_item(replica_id(1))}).at(0);
    local.reset();
    CHECK(viewer.bytes_of(opened) == value);
}

TEST(what_is_lent_gives_no_right_to_write) {
    Local local;
    const auto dialled = net::dial_local(local.name);
    CHECK(dialled.fd);
    wire::Hello hello;
    hello.role = wire::Role::kData;
    wire::Buffer body;
    wire::Writer writer(body);
    wire::encode(hello, writer);
    wire::Buffer frames = make_frame(wire::Verb::kHello, 1, body);
    const wire::Buffer map = make_frame(wire::Verb::kMap, 2, {});
    frames.insert(frames.end(), map.begin(), map.end());
    CHECK_EQUAL(::send(dialled.fd.get(), frames.data(), frames.size(), 0), static_cast<ssize_t>(frames.size()));
    std::vector<net::FileDescriptor> lent;
    std::vector<std::uint8_t> room(4096);
    wait_until("the descriptor came", [&] {
        net::receive_with_descriptors(dialled.fd.get(), room, lent, MSG_DONTWAIT);
        return !lent.empty();
    });
    CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, lent[0].get(), 0) == MAP_FAILED);
    CHECK(::ftruncate(lent[0].get(), 0) != 0);
}

TEST(strangers_are_told_why_not) {
    Local local;
    std::string why;
    CHECK(!local.dial(why, "others"));
    CHECK(why.find("tenant 'default' alone, and this is 'others'") != std::string::npos);
    DataClient over_tcp(local.memory.server->port());
    over_tcp.send(wire::Verb::kMap, {});
    wire::Bytes body;
    CHECK(over_tcp.take_frame(body).status == Status::kNotSupported);
    CHECK_EQUAL(net::dial_local("mooncake-nobody-listens-here").why,
                "@mooncake-nobody-listens-here: Connection refused");
}

TEST(local_endpoints_are_read_as_they_are_written) {
    const net::LocalEndpoint endpoint{"boot.42", 1000, "mooncake-ab"};
    CHECK_EQUAL(net::local_text(endpoint), "shm://boot.42/1000/mooncake-ab");
    const auto parsed = net::parse_local_endpoint("shm://boot.42/1000/mooncake-ab");
    CHECK(parsed && parsed->place == endpoint.place && parsed->user == 1000 && parsed->name == endpoint.name);
    for (const auto* text : {"tcp://h:1", "shm://", "shm://a", "shm://a/1", "shm://a/x/n", "shm:///1/n",
                             "shm://a/1/", "shm://a/99999999999/n"}) {
        CHECK(!net::parse_local_endpoint(text));
    }
}

}  // namespace
int main(int argc, char** argv) { return check::run(argc, argv); }
