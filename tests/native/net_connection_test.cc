// Connection and Server against peers that are slow, hostile or gone.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "net_harness.h"

using namespace harness;

namespace {

// Receives `length` bytes (the body's first u64) in pieces of growing size with holes that are discarded, and
// answers with what it kept.
void scatter(Journal& journal, net::Connection& connection, const wire::FrameHeader& header,
             wire::Bytes body) {
    wire::Reader reader(body);
    const auto length = reader.get<std::uint64_t>();
    const auto kept = std::make_shared<std::vector<wire::Buffer>>();
    std::vector<iovec> targets;
    std::size_t at = 0;
    for (std::size_t i = 0; at < length; ++i) {
        const std::size_t size = std::min<std::size_t>(i * 37 % 5000, length - at);
        at += size;
        if (i % 5 == 4) {
            targets.push_back({nullptr, size});
        } else {
            kept->push_back(wire::Buffer(size));
            targets.push_back({kept->back().data(), size});
        }
    }
    connection.receive_payload(
        std::move(targets), [&journal, alive = connection.shared_from_this(), header, kept](bool done) {
            CHECK(alive->loop().in_loop());
            journal.note(done ? "done" : "not done");
            if (!done) return;
            wire::Buffer all;
            for (const auto& piece : *kept) all.insert(all.end(), piece.begin(), piece.end());
            alive->send(make_frame(header.verb, header.request_id, all, wire::kFlagReply));
        });
}

wire::Buffer scattered(const wire::Buffer& payload) {
    wire::Buffer kept;
    std::size_t at = 0;
    for (std::size_t i = 0; at < payload.size(); ++i) {
        const std::size_t size = std::min<std::size_t>(i * 37 % 5000, payload.size() - at);
        if (i % 5 != 4) {
            kept.insert(kept.end(), payload.data() + at, payload.data() + at + size);
        }
        at += size;
    }
    return kept;
}

wire::Buffer length_body(std::uint64_t length) {
    wire::Buffer body;
    wire::Writer(body).put(length);
    return body;
}

net::ConnectionLimits tiny_deadlines() {
    net::ConnectionLimits limits;
    limits.hello_timeout_ms = limits.frame_timeout_ms = 50;
    limits.payload_stall_ms = limits.send_stall_ms = 50;
    return limits;
}

}  // namespace

TEST(pipelined_frames_are_answered_in_order) {
    TestServer server(echo);
    RawPeer peer(server.port());
    wire::Buffer all;
    for (std::uint64_t i = 0; i < 1000; ++i) {
        const wire::Buffer frame = ping(i, std::string(i % 300, 'x'));
        all.insert(all.end(), frame.begin(), frame.end());
    }
    peer.send(all);
    for (std::uint64_t i = 0; i < 1000; ++i) {
        const auto [header, body] = peer.receive_frame();
        CHECK_EQUAL(header.request_id, i);
        CHECK(header.is_reply());
        CHECK_EQUAL(body.size(), i % 300);
    }
}

TEST(frames_arriving_byte_by_byte_are_whole) {
    TestServer server(echo);
    for (std::size_t split = 1; split <= 40; ++split) {
        RawPeer peer(server.port());
        wire::Buffer all = ping(1, "hello world");
        const wire::Buffer second = ping(2, "and again");
        all.insert(all.end(), second.begin(), second.end());
        for (std::size_t at = 0; at < all.size(); at += split) {
            peer.send(wire::Bytes(all).subspan(at, std::min(split, all.size() - at)));
        }
        CHECK(wire::as_text(peer.receive_frame().second) == "hello world");
        CHECK(wire::as_text(peer.receive_frame().second) == "and again");
    }
}

TEST(bodies_up_to_the_limit_are_taken_and_memory_is_let_go) {
    TestServer server(echo);
    RawPeer peer(server.port());
    peer.send(ping(1, "first"));
    peer.receive_frame();
    const wire::Buffer body = pattern(wire::kBodyBytesMax);
    for (int i = 0; i < 3; ++i) {
        peer.send(make_frame(wire::Verb::kPing, 2, body));
        CHECK(peer.receive_frame().second == body);
    }
}

TEST(a_first_frame_longer_than_a_hello_ends_the_connection) {
    TestServer server(echo);
    RawPeer peer(server.port());
    wire::Buffer frame = ping(1, std::string(wire::kHelloBytesMax + 1, 'x'));
    peer.send(wire::Bytes(frame).first(wire::kFrameHeaderBytes));
    CHECK(peer.receive_to_end().empty());
    CHECK_EQUAL(server.journal.count("frame"), 0);
}

TEST(a_body_above_the_limit_ends_the_connection) {
    TestServer server(echo);
    RawPeer peer(server.port());
    peer.send(ping(1, "first"));
    peer.receive_frame();
    wire::FrameHeader header;
    header.body_bytes = wire::kBodyBytesMax + 1;
    wire::Buffer frame;
    wire::Writer(frame).put(header);
    peer.send(frame);
    CHECK(peer.receive_to_end().empty());
    server.journal.wait("close");
}

TEST(payload_is_scattered_however_it_arrives) {
    for (const std::size_t step : {std::size_t{1013}, std::size_t{4096}, std::size_t{1} << 20}) {
        Journal events;
        TestServer server([&](auto& connection, const auto& header, auto body) {
            if (header.verb == wire::Verb::kPing) return echo(connection, header, body);
            scatter(events, connection, header, body);
        });
        RawPeer peer(server.port());
        wire::Buffer all;
        std::vector<wire::Buffer> payloads;
        for (std::uint64_t i = 0; i < 6; ++i) {
            payloads.push_back(pattern(i * i * 40'000 + i, static_cast<std::uint32_t>(i + 1)));
            const wire::Buffer head = make_frame(wire::Verb::kWrite, i, length_body(payloads.back().size()));
            const wire::Buffer next = ping(100 + i, "after");
            all.insert(all.end(), head.begin(), head.end());
            all.insert(all.end(), payloads.back().begin(), payloads.back().end());
            all.insert(all.end(), next.begin(), next.end());
        }
        std::thread sender([&] {
            for (std::size_t at = 0; at < all.size(); at += step) {
                peer.send(wire::Bytes(all).subspan(at, std::min(step, all.size() - at)));
            }
        });
        for (std::uint64_t i = 0; i < payloads.size(); ++i) {
            const auto [header, body] = peer.receive_frame();
            CHECK_EQUAL(header.request_id, i);
            CHECK(body == scattered(payloads[i]));
            CHECK_EQUAL(peer.receive_frame().first.request_id, 100 + i);
        }
        sender.join();
        CHECK_EQUAL(events.count("done"), 6);
    }
}

TEST(a_payload_that_comes_in_dribs_is_taken_as_it_comes) {
    const wire::Buffer payload = pattern(1 << 20);
    wire::Buffer target(payload.size());
    TestServer server([&](auto& connection, const auto& header, auto body) {
        if (header.verb != wire::Verb::kWrite) return echo(connection, header, body);
        connection.receive_payload({{target.data(), target.size()}}, [&, header](bool done) {
            if (done) connection.send(make_frame(header.verb, header.request_id, {}, wire::kFlagReply));
        });
    });
    RawPeer peer(server.port());
    peer.send(make_frame(wire::Verb::kWrite, 1, length_body(payload.size())));
    server.journal.wait("frame");
    const std::size_t drib = 100;
    peer.send(wire::Bytes(payload).first(drib));
    const auto end_ms = net::monotonic_ms() + kHangMs;
    while (std::atomic_ref(target[drib - 1]).load() != payload[drib - 1]) {
        CHECK(net::monotonic_ms() < end_ms);
        ::poll(nullptr, 0, 1);
    }
    peer.send(wire::Bytes(payload).subspan(drib));
    CHECK_EQUAL(peer.receive_frame().first.request_id, 1u);
    CHECK(target == payload);
    peer.send(ping(2, "after"));  // the mark is low again: a few bytes are heard
    CHECK_EQUAL(peer.receive_frame().first.request_id, 2u);
}

TEST(a_payload_larger_than_the_sockets_buffers_is_sent_once_and_whole) {
    const wire::Buffer payload = pattern(48u << 20);
    constexpr std::size_t kPieces = 5000;  // more than IOV_MAX, of uneven sizes, some empty
    Journal events;
    TestServer server([&](auto& connection, const auto& header, auto) {
        net::Outgoing frame;
        frame.head = make_frame(header.verb, header.request_id, {}, wire::kFlagReply);
        std::size_t at = 0;
        for (std::size_t i = 0; i < kPieces; ++i) {
            const std::size_t rest = payload.size() - at;
            const std::size_t size = i + 1 == kPieces ? rest : std::min(i * 13 % 20'000, rest);
            frame.payload.push_back({const_cast<std::uint8_t*>(payload.data()) + at, size});
            at += size;
        }
        frame.sent = [&](bool sent) { events.note(sent ? "sent" : "not sent"); };
        connection.send(std::move(frame));
        echo(connection, header, {});
    });
    RawPeer peer(server.port());
    peer.send(ping(7, ""));
    CHECK_EQUAL(peer.receive_frame().first.request_id, 7u);
    CHECK_EQUAL(events.count("sent"), 0);  // the rest cannot be in the kernel yet
    CHECK(peer.receive(payload.size()) == payload);
    peer.receive_frame();
    events.wait("sent");
    server.server.stop();
    CHECK_EQUAL(events.count("sent"), 1);
    CHECK_EQUAL(events.count("not sent"), 0);
}

TEST(a_chain_of_sends_from_their_completions_does_not_recurse) {
    const wire::Buffer piece = pattern(1000);
    std::function<void(net::Connection&, int)> send_next = [&](net::Connection& connection, int left) {
        net::Outgoing frame;
        frame.payload.push_back({const_cast<std::uint8_t*>(piece.data()), piece.size()});
        frame.sent = [&, left](bool sent) {
            if (sent && left > 1) send_next(connection, left - 1);
        };
        connection.send(std::move(frame));
    };
    TestServer server([&](auto& connection, const auto&, auto) { send_next(connection, 20'000); });
    RawPeer peer(server.port());
    peer.send(ping(1, ""));
    peer.receive(piece.size() * 20'000);
}

TEST(a_reset_amid_a_payload_answers_done_false_before_close) {
    Journal events;
    TestServer server(
        [&](auto& connection, const auto& header, auto body) { scatter(events, connection, header, body); });
    RawPeer peer(server.port());
    peer.send(make_frame(wire::Verb::kWrite, 1, length_body(1 << 20)));
    peer.send(pattern(5000));
    server.journal.wait("frame");
    peer.reset();
    server.journal.wait("close");
    CHECK_EQUAL(events.count("not done"), 1);
    CHECK_EQUAL(events.count("done"), 0);
}

TEST(a_close_answers_sent_false_once) {
    const wire::Buffer payload = pattern(32u << 20);
    Journal events;
    TestServer server([&](auto& connection, const auto& header, auto) {
        for (int i = 0; i < 3; ++i) {
            net::Outgoing frame;
            frame.head = make_frame(header.verb, header.request_id, {}, wire::kFlagReply);
            frame.payload.push_back({const_cast<std::uint8_t*>(payload.data()), payload.size()});
            frame.sent = [&](bool sent) { events.note(sent ? "sent" : "not sent"); };
            connection.send(std::move(frame));
        }
    });
    RawPeer peer(server.port());
    peer.send(ping(1, ""));
    peer.receive_frame();
    peer.reset();
    server.journal.wait("close");
    CHECK_EQUAL(events.count("not sent"), 3);
    CHECK_EQUAL(events.count("sent"), 0);
}

TEST(silence_ends_a_connection_at_each_deadline) {
    const wire::Buffer payload = pattern(32u << 20);
    Journal events;
    TestServer server(
        [&](auto& connection, const auto& header, auto body) {
            if (header.verb == wire::Verb::kWrite) return scatter(events, connection, header, body);
            if (header.verb != wire::Verb::kRead) return echo(connection, header, body);
            net::Outgoing frame;
            frame.payload.push_back({const_cast<std::uint8_t*>(payload.data()), payload.size()});
            frame.sent = [&](bool sent) { events.note(sent ? "sent" : "not sent"); };
            connection.send(std::move(frame));
        },
        tiny_deadlines());
    RawPeer silent(server.port());
    server.journal.wait("close", 1);
    CHECK(silent.receive_to_end().empty());
    CHECK(server.journal.detail("close").find("first frame") != std::string::npos);

    RawPeer half(server.port());
    half.send(ping(1, ""));
    half.receive_frame();
    half.send(wire::Bytes(ping(2, "some body")).first(30));
    server.journal.wait("close", 2);
    CHECK(server.journal.detail("close").find("finish a frame") != std::string::npos);

    RawPeer stalled(server.port());
    stalled.send(make_frame(wire::Verb::kWrite, 1, length_body(1 << 20)));
    server.journal.wait("close", 3);
    CHECK(server.journal.detail("close").find("payload") != std::string::npos);
    CHECK_EQUAL(events.count("not done"), 1);

    RawPeer deaf(server.port());
    deaf.send(make_frame(wire::Verb::kRead, 1, {}));
    server.journal.wait("close", 4);
    CHECK(server.journal.detail("close").find("took nothing") != std::string::npos);
    CHECK_EQUAL(events.count("not sent"), 1);

    // One that has said hello and owes nothing may be silent for as long as it likes.
    RawPeer idle(server.port());
    idle.send(ping(1, ""));
    idle.receive_frame();
    CHECK(!net::wait_for(idle.fd(), POLLIN, net::monotonic_ms() + 700));
    idle.send(ping(2, ""));
    idle.receive_frame();
}

TEST(a_peer_that_does_not_read_its_answers_is_not_read) {
    net::ConnectionLimits limits;
    limits.outgoing_bytes_max = 256u << 10;
    std::atomic<std::uint64_t> taken = 0;
    TestServer server(
        [&](auto& connection, const auto& header, auto body) {
            ++taken;
            echo(connection, header, body);
        },
        limits);
    RawPeer peer(server.port());
    peer.send(ping(0, ""));
    const std::string text(32'000, 'x');
    std::uint64_t whole = 1;
    wire::Buffer rest;
    // Until nothing has gone for a while: the kernel's buffers are full on both ways.
    while (net::wait_for(peer.fd(), POLLOUT, net::monotonic_ms() + 300)) {
        if (rest.empty()) rest = ping(whole++, text);
        const ssize_t n = peer.try_send(rest);
        CHECK(n >= 0);
        rest.erase(rest.begin(), rest.begin() + n);
        CHECK(whole < 100'000);
    }
    CHECK(taken < whole);
    std::thread finisher([&] { peer.send(rest); });
    for (std::uint64_t i = 0; i < whole; ++i) CHECK_EQUAL(peer.receive_frame().first.request_id, i);
    finisher.join();
}

TEST(a_last_word_reaches_a_peer_that_is_still_sending) {
    TestServer server([](auto& connection, const auto& header, auto) {
        connection.send(wire::refusal(header, wire::Status::kUnauthenticated, "who are you?"));
        connection.close("refused", true);
        connection.send(wire::refusal(header, wire::Status::kBusy, "after the end"));
    });
    RawPeer peer(server.port());
    wire::Buffer all = ping(1, "");
    const wire::Buffer more = ping(2, std::string(100'000, 'x'));
    all.insert(all.end(), more.begin(), more.end());
    peer.send(all);
    const auto [header, body] = peer.receive_frame();
    CHECK(header.status == wire::Status::kUnauthenticated);
    CHECK(peer.receive_to_end().empty());
    peer.reset();
    server.journal.wait("close");
    CHECK(server.journal.detail("close") == "refused");
}

TEST(an_exception_in_a_handler_ends_only_its_connection) {
    TestServer server([](auto& connection, const auto& header, auto body) {
        if (body.empty()) throw std::runtime_error("no body");
        echo(connection, header, body);
    });
    RawPeer good(server.port());
    RawPeer bad(server.port());
    bad.send(ping(1, ""));
    CHECK(bad.receive_to_end().empty());
    good.send(ping(1, "x"));
    good.receive_frame();
}

TEST(other_threads_may_send_and_close_at_any_time) {
    std::mutex mutex;
    std::vector<std::shared_ptr<net::Connection>> connections;
    Journal events;
    TestServer server([&](auto& connection, const auto&, auto) {
        const std::lock_guard lock(mutex);
        connections.push_back(connection.shared_from_this());
    });
    constexpr int kRounds = 20;
    constexpr int kFrames = 200;
    for (int round = 0; round < kRounds; ++round) {
        RawPeer peer(server.port());
        peer.send(ping(1, ""));
        server.journal.wait("frame", round + 1);
        std::shared_ptr<net::Connection> connection;
        {
            const std::lock_guard lock(mutex);
            connection = connections.back();
        }
        const auto send_many = [&] {
            for (int i = 0; i < kFrames; ++i) {
                net::Outgoing frame;
                frame.head = ping(static_cast<std::uint64_t>(i), "from another thread");
                frame.sent = [&](bool) { events.note("answered"); };
                connection->send(std::move(frame));
            }
        };
        std::thread one(send_many);
        std::thread two(send_many);
        peer.receive_frame();
        if (round % 2 == 0) connection->close("enough");
        one.join();
        two.join();
        connection->close("enough", true);
        if (round % 2 == 1) CHECK(peer.receive_to_end().size() > 0);
        connection->send(ping(1, "after the end"));
        events.wait("answered", (round + 1) * 2 * kFrames);
    }
    server.server.stop();
    CHECK_EQUAL(events.count("answered"), kRounds * 2 * kFrames);
    CHECK_EQUAL(server.journal.count("close"), kRounds);
    const std::lock_guard lock(mutex);
    connections.clear();
}

TEST(stop_ends_open_connections_and_is_idempotent) {
    TestServer server(echo);
    std::vector<std::unique_ptr<RawPeer>> peers;
    for (int i = 0; i < 50; ++i) {
        peers.push_back(std::make_unique<RawPeer>(server.port()));
        peers.back()->send(ping(1, "x"));
    }
    server.journal.wait("frame", 50);
    CHECK_EQUAL(server.server.connection_count(), 50u);
    server.server.stop();
    CHECK_EQUAL(server.journal.count("close"), 50);
    CHECK_EQUAL(server.server.connection_count(), 0u);
    for (const auto& peer : peers) peer->receive_to_end();
    server.server.stop();
    CHECK(!net::dial({"127.0.0.1", server.port()}, net::monotonic_ms() + 5000).fd);
}

TEST(stop_after_the_loops_have_stopped_returns) {
    TestServer server(echo);
    RawPeer peer(server.port());
    peer.send(ping(1, "x"));
    peer.receive_frame();
    server.loops.stop();
    CHECK_EQUAL(server.journal.count("close"), 1);
    server.server.stop();
    CHECK_EQUAL(server.server.connection_count(), 0u);
}

TEST(connections_beyond_the_bound_are_closed_at_once) {
    TestServer server(echo, {}, 1, 2);
    RawPeer one(server.port());
    RawPeer two(server.port());
    one.send(ping(1, ""));
    two.send(ping(1, ""));
    one.receive_frame();
    two.receive_frame();
    RawPeer three(server.port());
    CHECK(three.receive_to_end().empty());
    one.reset();
    server.journal.wait("close");
    // The count falls just after on_close; until then a newcomer may still be turned away.
    while (server.server.connection_count() == 2) std::this_thread::yield();
    RawPeer four(server.port());
    four.send(ping(1, ""));
    four.receive_frame();
}

TEST(running_out_of_descriptors_neither_spins_nor_ends_the_server) {
    TestServer server(echo);
    net::FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(client.get() >= 0);
    rlimit before{};
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit none = before;
    none.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server.port());
    CHECK(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const wire::Buffer frame = ping(1, "patient");
    CHECK(::send(client.get(), frame.data(), frame.size(), MSG_NOSIGNAL) > 0);
    const std::clock_t cpu_before = std::clock();
    CHECK(!net::wait_for(client.get(), POLLIN, net::monotonic_ms() + 400));
    CHECK(std::clock() - cpu_before < CLOCKS_PER_SEC / 5);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(net::wait_for(client.get(), POLLIN, net::monotonic_ms() + kHangMs));
}

TEST(random_bytes_harm_nobody) {
    Journal events;
    TestServer server([&](auto& connection, const auto& header, auto body) {
        if (header.verb == wire::Verb::kWrite && body.size() == 8) {
            std::uint64_t length;
            std::memcpy(&length, body.data(), 8);
            if (length < 100'000) return scatter(events, connection, header, body);
        }
        echo(connection, header, body);
    });
    std::mt19937 random(20);
    for (int i = 0; i < 3000; ++i) {
        RawPeer peer(server.port());
        wire::Buffer bytes;
        const auto frames = random() % 4;
        for (unsigned f = 0; f < frames; ++f) {  // some that are well-formed, so that it gets further
            const wire::Buffer frame = random() % 2
                                           ? ping(f, std::string(random() % 200, 'y'))
                                           : make_frame(wire::Verb::kWrite, f, length_body(random() % 2000));
            bytes.insert(bytes.end(), frame.begin(), frame.end());
        }
        const wire::Buffer noise = pattern(random() % 300, static_cast<std::uint32_t>(random()));
        bytes.insert(bytes.end(), noise.begin(), noise.end());
        for (auto flips = random() % 3; flips > 0 && !bytes.empty(); --flips) {
            bytes[random() % bytes.size()] ^= static_cast<std::uint8_t>(1u << (random() % 8));
        }
        static_cast<void>(peer.try_send(bytes));
        if (i % 3 == 0) peer.reset();
    }
    RawPeer good(server.port());
    good.send(ping(1, "still here"));
    CHECK(wire::as_text(good.receive_frame().second) == "still here");
}

int main(int argc, char** argv) { return check::run(argc, argv); }
