// ClientSocket and net::connect against Server, and addresses as text.
#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>

#include "net/client_socket.h"
#include "net/connection_pool.h"
#include "net_harness.h"

using namespace harness;

namespace {

std::uint64_t soon(std::uint64_t ms = kHangMs) { return net::monotonic_ms() + ms; }

constexpr wire::Uuid kServerUuid{7, 7, 7};

// Welcomes; then echoes pings, answers a read with as many bytes as asked (u64), and swallows the rest.
OnFrame serve(const wire::Buffer& payload) {
    return [kept = std::make_shared<const wire::Buffer>(payload)](
               net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        if (header.verb == wire::Verb::kHello) {
            const auto hello = wire::parse_hello(body);
            if (!hello || hello->tenant == "nobody") {
                connection.send(wire::refusal(header, wire::Status::kUnauthenticated, "no such tenant"));
                return connection.close("refused", true);
            }
            wire::Welcome welcome;
            welcome.process = kServerUuid;
            wire::Buffer encoded;
            wire::Writer writer(encoded);
            wire::encode(welcome, writer);
            connection.send(make_frame(header.verb, header.request_id, encoded, wire::kFlagReply));
        } else if (header.verb == wire::Verb::kPing) {
            echo(connection, header, body);
        } else if (header.verb == wire::Verb::kRead) {
            wire::Reader reader(body);
            net::Outgoing frame;
            frame.head = make_frame(header.verb, header.request_id, body, wire::kFlagReply);
            frame.payload.push_back({const_cast<std::uint8_t*>(kept->data()), reader.get<std::uint64_t>()});
            connection.send(std::move(frame));
        }
    };
}

std::unique_ptr<net::ClientSocket> dial_server(std::uint16_t port) {
    std::string why;
    wire::Status status{};
    auto socket = net::ClientSocket::connect({"127.0.0.1", port}, wire::Hello{}, soon(), why, status);
    CHECK_EQUAL(why, "");
    CHECK(socket != nullptr && wire::ok(status));
    return socket;
}

void send_frame(net::ClientSocket& socket, wire::Buffer frame) {
    iovec piece{frame.data(), frame.size()};
    CHECK(socket.send_all({&piece, 1}, soon()) == net::IoResult::kDone);
}

// A listener that never accepts what it is sent; its port.
std::uint16_t mute_port(net::FileDescriptor& listener, int backlog = 10) {
    listener.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    CHECK(::listen(listener.get(), backlog) == 0);
    socklen_t length = sizeof address;
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
}

}  // namespace

TEST(a_client_is_welcomed_and_answered) {
    const wire::Buffer payload = pattern(1 << 20);
    TestServer server(serve(payload));
    const auto socket = dial_server(server.port());
    CHECK(socket->peer_process() == kServerUuid);
    wire::FrameHeader header;
    wire::Bytes body;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{65'512}, std::size_t{65'513},
                                   std::size_t{3'000'000}, wire::kBodyBytesMax, std::size_t{10}}) {
        const wire::Buffer sent = pattern(size);
        const std::uint64_t id = socket->next_request_id();
        std::thread sender([&] { send_frame(*socket, make_frame(wire::Verb::kPing, id, sent)); });
        CHECK(socket->receive_frame(header, body, soon()) == net::IoResult::kDone);
        sender.join();
        CHECK_EQUAL(header.request_id, id);
        CHECK(std::equal(body.begin(), body.end(), sent.begin(), sent.end()));
    }
    CHECK(socket->is_idle_healthy());
}

TEST(payloads_are_scattered_and_pipelined_answers_kept_apart) {
    const wire::Buffer payload = pattern(5u << 20);
    TestServer server(serve(payload));
    const auto socket = dial_server(server.port());
    const std::vector<std::uint64_t> sizes{0, 1, 4096, 60'000, 70'000, 5u << 20, 333};
    wire::Buffer requests;
    for (const std::uint64_t size : sizes) {
        wire::Buffer body;
        wire::Writer(body).put(size);
        const wire::Buffer frame = make_frame(wire::Verb::kRead, size, body);
        requests.insert(requests.end(), frame.begin(), frame.end());
    }
    send_frame(*socket, requests);
    for (const std::uint64_t size : sizes) {
        wire::FrameHeader header;
        wire::Bytes body;
        CHECK(socket->receive_frame(header, body, soon()) == net::IoResult::kDone);
        CHECK_EQUAL(header.request_id, size);
        CHECK(!socket->is_idle_healthy() || size < 100);
        wire::Buffer target(size, 0);
        std::vector<iovec> pieces;  // one in three is discarded
        for (std::size_t at = 0, i = 0; at < size; ++i) {
            const std::size_t n = std::min<std::size_t>(i * 11 % 3000, size - at);
            pieces.push_back({i % 3 == 2 ? nullptr : target.data() + at, n});
            at += n;
        }
        const std::vector<iovec> kept = pieces;
        CHECK(socket->receive_into(pieces, soon()) == net::IoResult::kDone);
        std::size_t at = 0;
        for (const iovec& piece : kept) {
            if (piece.iov_base != nullptr) {
                CHECK(std::equal(target.begin() + static_cast<std::ptrdiff_t>(at),
                                 target.begin() + static_cast<std::ptrdiff_t>(at + piece.iov_len),
                                 payload.begin() + static_cast<std::ptrdiff_t>(at)));
            }
            at += piece.iov_len;
        }
    }
    CHECK(socket->is_idle_healthy());
}

TEST(received_bytes_are_told_as_they_come_and_never_more_than_stay_hot) {
    const wire::Buffer payload = pattern(3u << 20);
    TestServer server(serve(payload));
    const auto socket = dial_server(server.port());
    for (const std::uint64_t size : {std::uint64_t{5}, std::uint64_t{70'000}, std::uint64_t{3u << 20}}) {
        wire::Buffer asked;
        wire::Writer(asked).put(size);
        send_frame(*socket, make_frame(wire::Verb::kRead, size, asked));
        wire::FrameHeader header;
        wire::Bytes body;
        CHECK(socket->receive_frame(header, body, soon()) == net::IoResult::kDone);
        wire::Buffer target(size, 0);
        std::vector<iovec> pieces{{target.data(), 1}, {target.data() + 1, size - 1}};
        std::span<iovec> left = pieces;
        std::size_t told = 0;
        const net::ClientSocket::Received received = [&](std::size_t bytes) {
            CHECK(bytes > 0 && bytes <= net::kHotBytes);
            CHECK(std::equal(target.begin() + static_cast<std::ptrdiff_t>(told),
                             target.begin() + static_cast<std::ptrdiff_t>(told + bytes),
                             payload.begin() + static_cast<std::ptrdiff_t>(told)));
            told += bytes;
        };
        while (true) {
            const auto result = socket->try_receive_into(left, received);
            if (result == net::IoResult::kDone) break;
            CHECK(result == net::IoResult::kWouldBlock);
            CHECK(net::wait_for(socket->fd(), POLLIN, soon()));
        }
        CHECK_EQUAL(told, size);
    }
}

TEST(a_pool_gives_what_was_used_just_now_without_a_look_and_never_what_holds_bytes) {
    TestServer server(serve({}));
    net::ConnectionPool pool(2, 1);
    std::unique_ptr<net::ClientSocket> socket;
    CHECK(pool.take(false, 0, socket) == net::ConnectionPool::Taken::kSlot);
    pool.give_back(dial_server(server.port()), 0);
    server.server.stop();
    // Its owner finds out, and asks again on a new one.
    CHECK(pool.take(false, 0, socket) == net::ConnectionPool::Taken::kConnection);
    wire::FrameHeader header;
    wire::Bytes body;
    CHECK(socket->receive_frame(header, body, soon()) == net::IoResult::kClosed);

    TestServer other(serve({}));
    auto holds_bytes = dial_server(other.port());
    wire::Buffer requests = ping(1, "one");
    const wire::Buffer second = ping(2, "two");
    requests.insert(requests.end(), second.begin(), second.end());
    send_frame(*holds_bytes, requests);
    CHECK(holds_bytes->receive_frame(header, body, soon()) == net::IoResult::kDone);
    if (!holds_bytes->has_unread()) {
        CHECK(holds_bytes->receive_frame(header, body, soon()) == net::IoResult::kDone);
        return;  // the answers came one by one
    }
    pool.drop(0);
    CHECK(pool.take(false, 0, socket) == net::ConnectionPool::Taken::kSlot);
    pool.give_back(std::move(holds_bytes), 0);
    CHECK(pool.take(false, 0, socket) == net::ConnectionPool::Taken::kSlot);
}

TEST(a_refusal_gives_its_status_and_words) {
    TestServer server(serve({}));
    std::string why;
    wire::Status status{};
    wire::Hello hello;
    hello.tenant = "nobody";
    CHECK(net::ClientSocket::connect({"127.0.0.1", server.port()}, hello, soon(), why, status) == nullptr);
    CHECK(status == wire::Status::kUnauthenticated);
    CHECK(why.find("no such tenant") != std::string::npos);
    CHECK(why.find(std::to_string(server.port())) != std::string::npos);
}

TEST(a_refused_dial_names_the_address) {
    net::FileDescriptor listener;
    const std::uint16_t port = mute_port(listener);
    listener.reset();
    std::string why;
    wire::Status status{};
    CHECK(net::ClientSocket::connect({"127.0.0.1", port}, {}, soon(), why, status) == nullptr);
    CHECK(status == wire::Status::kRpcFail);
    CHECK_EQUAL(why, "127.0.0.1:" + std::to_string(port) + ": Connection refused");
}

TEST(names_are_resolved_and_unknown_ones_named) {
    TestServer server(serve({}));
    std::string why;
    wire::Status status{};
    CHECK(net::ClientSocket::connect({"localhost", server.port()}, {}, soon(), why, status) != nullptr);
    CHECK(net::ClientSocket::connect({"no-such-host.invalid", 1}, {}, soon(), why, status) == nullptr);
    CHECK(why.find("no-such-host.invalid:1") != std::string::npos);
}

TEST(a_peer_that_never_answers_hello_costs_the_deadline) {
    net::FileDescriptor listener;
    const std::uint16_t port = mute_port(listener);
    std::string why;
    wire::Status status{};
    const std::uint64_t start = net::monotonic_ms();
    CHECK(net::ClientSocket::connect({"127.0.0.1", port}, {}, soon(100), why, status) == nullptr);
    CHECK(status == wire::Status::kDeadline);
    CHECK(net::monotonic_ms() - start >= 100);
}

TEST(a_peer_that_speaks_something_else_is_malformed) {
    net::FileDescriptor listener;
    const std::uint16_t port = mute_port(listener);
    std::thread peer([&] {
        const net::FileDescriptor socket(::accept(listener.get(), nullptr, nullptr));
        const std::string text(100, 'H');
        CHECK(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == 100);
        std::uint8_t byte;
        while (::recv(socket.get(), &byte, 1, 0) > 0) continue;
    });
    std::string why;
    wire::Status status{};
    CHECK(net::ClientSocket::connect({"127.0.0.1", port}, {}, soon(), why, status) == nullptr);
    CHECK(status == wire::Status::kMalformed);
    peer.join();
}

TEST(receiving_and_sending_end_at_the_deadline) {
    TestServer server(serve({}));
    const auto socket = dial_server(server.port());
    wire::FrameHeader header;
    wire::Bytes body;
    CHECK(socket->receive_frame(header, body, soon(50)) == net::IoResult::kDeadline);
    CHECK(socket->receive_frame(header, body, 0) == net::IoResult::kDeadline);
    CHECK(socket->try_receive_frame(header, body) == net::IoResult::kWouldBlock);
    std::uint8_t byte;
    iovec target{&byte, 1};
    CHECK(socket->receive_into({&target, 1}, soon(50)) == net::IoResult::kDeadline);
    CHECK(socket->error().find("127.0.0.1") != std::string::npos);
    // A late answer is still an answer: nothing of it was lost.
    send_frame(*socket, ping(5, "late"));
    CHECK(socket->receive_frame(header, body, soon()) == net::IoResult::kDone);
    CHECK(wire::as_text(body) == "late");

    net::FileDescriptor listener;
    const std::uint16_t port = mute_port(listener);
    Journal journal;
    std::thread peer([&] {
        const net::FileDescriptor accepted(::accept(listener.get(), nullptr, nullptr));
        std::uint8_t bytes[200];
        CHECK(::recv(accepted.get(), bytes, sizeof bytes, 0) > 0);
        wire::Buffer encoded;
        wire::Writer writer(encoded);
        wire::encode(wire::Welcome{}, writer);
        const wire::Buffer frame = make_frame(wire::Verb::kHello, 1, encoded, wire::kFlagReply);
        CHECK(::send(accepted.get(), frame.data(), frame.size(), MSG_NOSIGNAL) > 0);
        journal.wait("client is done");
    });
    std::string why;
    wire::Status status{};
    const auto deaf = net::ClientSocket::connect({"127.0.0.1", port}, {}, soon(), why, status);
    CHECK(deaf != nullptr);
    wire::Buffer large(64u << 20);
    iovec piece{large.data(), large.size()};
    CHECK(deaf->send_all({&piece, 1}, soon(100)) == net::IoResult::kDeadline);
    CHECK(piece.iov_len < large.size());  // advanced past what went
    journal.note("client is done");
    peer.join();
}

TEST(a_peer_that_sends_byte_by_byte_cannot_stretch_a_deadline) {
    net::FileDescriptor listener;
    const std::uint16_t port = mute_port(listener);
    std::atomic<bool> enough = false;
    std::thread peer([&] {
        const net::FileDescriptor accepted(::accept(listener.get(), nullptr, nullptr));
        const wire::Buffer frame = make_frame(wire::Verb::kHello, 1, pattern(4000), wire::kFlagReply);
        for (const std::uint8_t byte : frame) {
            if (enough || ::send(accepted.get(), &byte, 1, MSG_NOSIGNAL) != 1) return;
            net::wait_for(accepted.get(), POLLPRI, soon(5));
        }
    });
    std::string why;
    wire::Status status{};
    const std::uint64_t start = net::monotonic_ms();
    CHECK(net::ClientSocket::connect({"127.0.0.1", port}, {}, soon(300), why, status) == nullptr);
    CHECK(status == wire::Status::kDeadline);
    CHECK(net::monotonic_ms() - start < 5000);  // byte by byte it would have been 20 s
    enough = true;
    peer.join();
}

TEST(shutdown_wakes_a_blocked_owner) {
    TestServer server(serve({}));
    const auto socket = dial_server(server.port());
    std::thread waker([&] { socket->shutdown(); });
    wire::FrameHeader header;
    wire::Bytes body;
    CHECK(socket->receive_frame(header, body, soon()) == net::IoResult::kClosed);
    waker.join();
    CHECK(!socket->is_idle_healthy());
}

TEST(a_stopped_server_closes_its_clients) {
    TestServer server(serve({}));
    const auto socket = dial_server(server.port());
    CHECK(socket->is_idle_healthy());
    server.server.stop();
    wire::FrameHeader header;
    wire::Bytes body;
    CHECK(socket->receive_frame(header, body, soon()) == net::IoResult::kClosed);
    CHECK(!socket->is_idle_healthy());
}

TEST(connect_on_a_loop_gives_a_connection_or_why) {
    Journal journal;
    TestServer server(echo);
    net::LoopThreads loops("client", 1);
    const auto connect = [&](const std::string& host, std::uint16_t port, std::uint64_t timeout_ms) {
        net::connect(loops.at(0), host, port, timeout_ms, {},
                     std::make_unique<Handler>(journal, [](auto&, const auto&, auto) {}),
                     [&](std::shared_ptr<net::Connection> connection, std::string why) {
                         journal.note(connection ? "connected" : "failed", why);
                         if (connection) connection->send(ping(1, "hello"));
                     });
    };
    connect("127.0.0.1", server.port(), kHangMs);
    journal.wait("frame");
    connect("localhost", server.port(), kHangMs);
    journal.wait("frame", 2);

    net::FileDescriptor listener;
    const std::uint16_t port = mute_port(listener, 0);
    listener.reset();
    connect("127.0.0.1", port, kHangMs);
    journal.wait("failed", 1);
    CHECK_EQUAL(journal.detail("failed"), "127.0.0.1:" + std::to_string(port) + ": Connection refused");
    connect("no-such-host.invalid", 1, kHangMs);
    journal.wait("failed", 2);

    // A full backlog swallows the dial; it ends at its deadline.
    const std::uint16_t full = mute_port(listener, 0);
    RawPeer first(full);
    connect("127.0.0.1", full, 200);
    connect("127.0.0.1", full, 200);
    connect("127.0.0.1", full, 200);
    journal.wait("failed", 3);
    CHECK(journal.detail("failed").find(std::to_string(full)) != std::string::npos);

    connect("no-such-host.invalid", 1, kHangMs);
    loops.stop();
    CHECK_EQUAL(journal.count("close"), journal.count("connected"));
    journal.wait("failed", 4);
    connect("127.0.0.1", server.port(), kHangMs);
    CHECK(journal.detail("failed").find("stopped") != std::string::npos);
}

TEST(endpoints_are_read_strictly_and_written_back) {
    for (const char* text : {"10.0.0.1:50001", "a-host_1.example:1", "[::1]:50001", "[fe80::1%eth0]:65535"}) {
        const auto endpoint = net::parse_endpoint(text);
        CHECK(endpoint.has_value());
        CHECK_EQUAL(net::to_text(*endpoint), text);
        CHECK_EQUAL(net::to_text(*net::parse_endpoint("tcp://" + std::string(text))), text);
    }
    for (const char* text : {"", ":", "host", "host:", ":1", "host:65536", "host:-1", "host:1x", "host: 1",
                             "::1:5", "[::1]", "[::1:5", "[]:5", "ho st:5", "udp://host:5", "a/b:5"}) {
        if (net::parse_endpoint(text)) check::fail(__FILE__, __LINE__, std::string("taken: ") + text);
    }
}

int main(int argc, char** argv) { return check::run(argc, argv); }
