// What the tests of native/net share: a peer that writes raw bytes, and a handler whose answers a test can
// choose and whose events it can wait for.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "net/connection.h"
#include "net/dial.h"

namespace harness {

using namespace mooncake;

inline constexpr std::uint64_t kHangMs = 30'000;  // only turns a hang into a failure

// Counts of named events, to be waited for.
class Journal {
  public:
    void note(const std::string& event, const std::string& detail = "") {
        const std::lock_guard lock(mutex_);
        ++counts_[event];
        details_[event] = detail;
        changed_.notify_all();
    }
    void wait(const std::string& event, int count = 1) {
        std::unique_lock lock(mutex_);
        const bool came = changed_.wait_for(lock, std::chrono::milliseconds(kHangMs),
                                            [&] { return counts_[event] >= count; });
        if (!came) {
            check::fail(
                __FILE__, __LINE__,
                event + " came " + std::to_string(counts_[event]) + " times, not " + std::to_string(count));
        }
    }
    int count(const std::string& event) {
        const std::lock_guard lock(mutex_);
        return counts_[event];
    }
    std::string detail(const std::string& event) {
        const std::lock_guard lock(mutex_);
        return details_[event];
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, int> counts_;
    std::map<std::string, std::string> details_;
};

using OnFrame = std::function<void(net::Connection&, const wire::FrameHeader&, wire::Bytes)>;

class Handler : public net::ConnectionHandler {
  public:
    Handler(Journal& journal, OnFrame on_frame) : journal_(journal), on_frame_(std::move(on_frame)) {}
    void on_frame(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) override {
        CHECK(connection.loop().in_loop());
        CHECK(!closed_);
        on_frame_(connection, header, body);
        journal_.note("frame");
    }
    void on_close(net::Connection& connection, std::string_view reason) override {
        CHECK(connection.loop().in_loop());
        CHECK(!closed_);
        closed_ = true;
        journal_.note("close", std::string(reason));
    }

  private:
    Journal& journal_;
    const OnFrame on_frame_;
    bool closed_ = false;
};

inline wire::Buffer make_frame(wire::Verb verb, std::uint64_t request_id, wire::Bytes body,
                               std::uint8_t flags = 0) {
    wire::FrameHeader header;
    header.verb = verb;
    header.request_id = request_id;
    header.flags = flags;
    wire::Buffer buffer;
    const std::size_t start = wire::begin_frame(buffer, header);
    wire::Writer(buffer).bytes(body);
    wire::finish_frame(buffer, start);
    return buffer;
}

inline wire::Buffer ping(std::uint64_t request_id, std::string_view text) {
    return make_frame(wire::Verb::kPing, request_id, wire::as_bytes(text));
}

// Answers every frame with its own body.
inline void echo(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
    connection.send(make_frame(header.verb, header.request_id, body, wire::kFlagReply));
}

inline wire::Buffer pattern(std::size_t size, std::uint32_t seed = 1) {
    wire::Buffer bytes(size);
    std::uint32_t state = seed * 2654435761u + 1;
    for (auto& byte : bytes) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<std::uint8_t>(state >> 24);
    }
    return bytes;
}

// A peer that speaks bytes, not frames.
class RawPeer {
  public:
    explicit RawPeer(std::uint16_t port) {
        net::Dialled dialled = net::dial({"127.0.0.1", port}, deadline());
        CHECK_EQUAL(dialled.why, "");
        fd_ = std::move(dialled.fd);
    }
    void send(wire::Bytes bytes) {
        while (!bytes.empty()) {
            const ssize_t n = try_send(bytes);
            CHECK(n >= 0);
            if (n == 0) CHECK(net::wait_for(fd_.get(), POLLOUT, deadline()));
            bytes = bytes.subspan(static_cast<std::size_t>(n));
        }
    }
    // What goes now: 0 when the socket is full, -1 when the connection has ended.
    ssize_t try_send(wire::Bytes bytes) {
        const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        return n < 0 && errno == EAGAIN ? 0 : n;
    }
    wire::Buffer receive(std::size_t size) {
        wire::Buffer bytes(size);
        std::size_t have = 0;
        while (have < size) {
            CHECK(net::wait_for(fd_.get(), POLLIN, deadline()));
            const ssize_t n = ::recv(fd_.get(), bytes.data() + have, size - have, MSG_DONTWAIT);
            if (n < 0 && errno == EAGAIN) continue;
            if (n <= 0) check::fail(__FILE__, __LINE__, "closed after " + std::to_string(have) + " bytes");
            have += static_cast<std::size_t>(n);
        }
        return bytes;
    }
    std::pair<wire::FrameHeader, wire::Buffer> receive_frame() {
        const auto header = wire::parse_frame_header(receive(wire::kFrameHeaderBytes));
        CHECK(header.has_value());
        return {*header, receive(header->body_bytes)};
    }
    // What comes until the other side has closed.
    wire::Buffer receive_to_end() {
        wire::Buffer all;
        wire::Buffer piece(65536);
        while (true) {
            CHECK(net::wait_for(fd_.get(), POLLIN, deadline()));
            const ssize_t n = ::recv(fd_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
            if (n < 0 && errno == EAGAIN) continue;
            if (n <= 0) return all;
            all.insert(all.end(), piece.begin(), piece.begin() + n);
        }
    }
    void reset() {  // ends the connection with RST
        const linger now{1, 0};
        setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
        fd_.reset();
    }
    int fd() const { return fd_.get(); }

  private:
    static std::uint64_t deadline() { return net::monotonic_ms() + kHangMs; }
    net::FileDescriptor fd_;
};

// A server whose connections all behave as `on_frame` says.
struct TestServer {
    explicit TestServer(OnFrame on_frame, net::ConnectionLimits limits = {}, std::size_t threads = 2,
                        std::size_t connections_max = 16384)
        : loops("test", threads), server(loops, options(limits, connections_max), [this, on_frame] {
              return std::make_unique<Handler>(journal, on_frame);
          }) {}
    static net::Server::Options options(const net::ConnectionLimits& limits, std::size_t connections_max) {
        net::Server::Options made;
        made.host = "127.0.0.1";
        made.limits = limits;
        made.connections_max = connections_max;
        return made;
    }
    std::uint16_t port() const { return server.port(); }

    Journal journal;
    net::LoopThreads loops;
    net::Server server;
};

}  // namespace harness
