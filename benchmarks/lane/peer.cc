#include "peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "wire/control.h"

namespace mooncake::bench {

namespace {

constexpr std::string_view kKeyPrefix = "meta-llama/Llama-3.3-70B-Instruct@fp8@tp_rank:0003@";
constexpr std::size_t kHashDigits = kKeyBytes - kKeyPrefix.size();
static_assert(kHashDigits == 64);

net::FileDescriptor connected(const Target& target) {
    net::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(target.port);
    if (::inet_pton(AF_INET, target.host.c_str(), &address.sin_addr) != 1) {
        fail(target.host + " is no IPv4 address");
    }
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        fail("cannot connect to " + target.host + ":" + std::to_string(target.port) + ": " +
             std::strerror(errno));
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return socket;
}

wire::Uuid random_uuid() {
    static std::random_device device;
    wire::Uuid uuid{};
    for (auto& byte : uuid) byte = static_cast<std::uint8_t>(device());
    return uuid;
}

void receive_all(int fd, std::uint8_t* into, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t n = ::recv(fd, into, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("the master closed a connection");
        into += n;
        bytes -= static_cast<std::size_t>(n);
    }
}

}  // namespace

void fail(const std::string& why) {
    std::fprintf(stderr, "lane_load: %s\n", why.c_str());
    std::_Exit(1);
}

std::uint64_t now_ns() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

Key::Key(std::uint64_t number) {
    std::memcpy(text_, kKeyPrefix.data(), kKeyPrefix.size());
    char* at = text_ + kKeyPrefix.size();
    for (std::uint64_t word = 0; word < kHashDigits / 16; ++word) {
        std::uint64_t mixed = wire::mix64(number * 4 + word + 1);
        for (int digit = 0; digit < 16; ++digit, mixed >>= 4) *at++ = "0123456789abcdef"[mixed & 15];
    }
}

std::span<const std::string_view> KeyBatch::views() {
    views_.clear();
    for (const auto& key : keys_) views_.push_back(key.text());
    return views_;
}

Peer::Peer(const Target& target, wire::Role role) : socket_(connected(target)), process_(random_uuid()) {
    wire::Hello hello;
    hello.role = role;
    hello.process = process_;
    hello.software = "lane_load";
    ask(wire::Verb::kHello, [&](wire::Writer& writer) { wire::encode(hello, writer); });
    wire::OpenSession open;
    open.process = process_;
    open.name = "lane_load";
    open.host_id = "bench";
    const auto reply = wire::parse_open_session_reply(
        ask(wire::Verb::kOpenSession, [&](wire::Writer& writer) { wire::encode(open, writer); }));
    if (!reply) fail("malformed answer to open_session");
    session_ = reply->session;
    epoch_ = reply->epoch;
}

wire::Buffer Peer::frame(wire::Verb verb, const std::function<void(wire::Writer&)>& body) {
    wire::Buffer buffer;
    wire::FrameHeader header;
    header.verb = verb;
    header.request_id = ++request_id_;
    const std::size_t start = wire::begin_frame(buffer, header);
    wire::Writer writer(buffer);
    body(writer);
    wire::finish_frame(buffer, start);
    return buffer;
}

void Peer::send(wire::Bytes frame) {
    while (!frame.empty()) {
        const ssize_t n = ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail(std::string("send: ") + std::strerror(errno));
        frame = frame.subspan(static_cast<std::size_t>(n));
    }
}

wire::FrameHeader Peer::receive(wire::Bytes& body) {
    std::uint8_t head[wire::kFrameHeaderBytes];
    receive_all(socket_.get(), head, sizeof head);
    const auto header = wire::parse_frame_header({head, sizeof head});
    if (!header) fail("the master sent no frame");
    received_.resize(header->body_bytes);
    receive_all(socket_.get(), received_.data(), received_.size());
    body = received_;
    return *header;
}

wire::Bytes Peer::ask(wire::Verb verb, const std::function<void(wire::Writer&)>& body) {
    send(frame(verb, body));
    for (;;) {
        wire::Bytes answer;
        const wire::FrameHeader header = receive(answer);
        if (!header.is_reply() || header.request_id != request_id_) {
            if (commanded) commanded(header, answer);
            continue;
        }
        if (!wire::ok(header.status)) {
            fail(std::string(wire::verb_name(verb)) + " was answered " + wire::status_name(header.status) +
                 ": " + std::string(wire::as_text(answer)));
        }
        return answer;
    }
}

}  // namespace mooncake::bench
