#include "net/discover.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "net/address.h"
#include "net/dial.h"
#include "net/event_loop.h"
#include "net/http2.h"
#include "wire/bytes.h"
#include "wire/limits.h"

namespace mooncake::net {

namespace {

constexpr std::string_view kPath = "/mooncake_store.v1.MasterService/Discover";

// What the protobuf message DiscoverReply says.
struct Reply {
    std::string lane_endpoint;
    std::uint64_t epoch = 0;
    std::string master_uuid;
    std::string software;
    std::uint64_t deposed_by_epoch = 0;
};

std::optional<std::uint64_t> take_varint(wire::Reader& reader) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const auto byte = reader.get<std::uint8_t>();
        if (!reader.ok()) return std::nullopt;
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if ((byte & 0x80) == 0) return value;
    }
    return std::nullopt;
}

std::optional<Reply> parse_reply(wire::Bytes message) {
    enum WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
    Reply reply;
    wire::Reader reader(message);
    while (reader.remaining() > 0) {
        const auto tag = take_varint(reader);
        if (!tag) return std::nullopt;
        const std::uint64_t field = *tag >> 3;
        switch (*tag & 7) {
            case kVarint: {
                const auto value = take_varint(reader);
                if (!value) return std::nullopt;
                if (field == 2) reply.epoch = *value;
                if (field == 5) reply.deposed_by_epoch = *value;
                break;
            }
            case kFixed64:
                reader.bytes(8);
                break;
            case kFixed32:
                reader.bytes(4);
                break;
            case kLengthDelimited: {
                const auto length = take_varint(reader);
                if (!length) return std::nullopt;
                const std::string_view text = wire::as_text(reader.bytes(*length));
                if (field == 1) reply.lane_endpoint = text;
                if (field == 3) reply.master_uuid = text;
                if (field == 4) reply.software = text;
                break;
            }
            default:
                return std::nullopt;
        }
        if (!reader.ok()) return std::nullopt;
    }
    return reply;
}

// The lane's address as the asker can reach it.
std::optional<Endpoint> lane_of(std::string_view text, const Endpoint& master) {
    constexpr std::string_view kScheme = "tcp://";
    if (text.starts_with(kScheme)) text.remove_prefix(kScheme.size());
    const std::string with_host = text.starts_with(':') ? "0.0.0.0" + std::string(text) : std::string(text);
    auto lane = parse_endpoint(with_host);
    if (lane && (lane->host == "0.0.0.0" || lane->host == "::")) lane->host = master.host;
    if (lane && lane->port == 0) return std::nullopt;
    return lane;
}

// The protobuf message DiscoverRequest.
wire::Buffer request_message(const Reign& followed) {
    wire::Buffer message;
    if (followed.epoch == 0) return message;
    message.push_back(1 << 3);
    std::uint64_t rest = followed.epoch;
    for (; rest >= 0x80; rest >>= 7) message.push_back(static_cast<std::uint8_t>(rest | 0x80));
    message.push_back(static_cast<std::uint8_t>(rest));
    message.push_back(2 << 3 | 2);
    message.push_back(static_cast<std::uint8_t>(followed.master.size()));
    message.insert(message.end(), followed.master.begin(), followed.master.end());
    return message;
}

std::string printable(std::string_view text) {
    std::string shown;
    for (const char c : text.substr(0, 64)) shown += c >= ' ' && c <= '~' ? c : '?';
    return shown;
}

// Empty, or why not all of it was sent.
std::string send_bytes(int fd, wire::Bytes bytes, const Patience& patience) {
    while (!bytes.empty()) {
        const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(n));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(fd, POLLOUT, patience)) return "takes nothing";
        } else if (errno != EINTR) {
            return errno_text(errno);
        }
    }
    return "";
}

// Reads until the reply's state is decided; empty, or why it will not be.
std::string converse(int fd, GrpcReply& reply, const Patience& patience) {
    std::array<std::uint8_t, 4096> bytes;
    while (reply.state() == GrpcReply::State::kOpen) {
        if (!wait_for(fd, POLLIN, patience)) return "no answer within the deadline";
        const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (n == 0) {
            return reply.has_settings() ? "closed the connection without an answer"
                                        : "closed the connection: it is not a gRPC server";
        }
        if (n < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) continue;
            return errno_text(errno);
        }
        wire::Buffer answer;
        reply.add(wire::Bytes(bytes).first(static_cast<std::size_t>(n)), answer);
        if (std::string why = send_bytes(fd, answer, patience); !why.empty()) return why;
    }
    return "";
}

}  // namespace

Discovery discover(const Endpoint& master, std::uint64_t timeout_ms, const std::function<bool()>& given_up,
                   const Reign& followed) {
    const Patience patience(monotonic_ms() + timeout_ms, given_up);
    const std::string where = to_text(master);
    Discovery discovery;
    const Dialled dialled = dial(master, patience);
    if (!dialled.fd) {
        discovery.why = "cannot connect to the master at " + where + ": " + dialled.why;
        return discovery;
    }
    const wire::Buffer request = grpc_request(where, kPath, timeout_ms, request_message(followed));
    GrpcReply reply;
    std::string why = send_bytes(dialled.fd.get(), request, patience);
    if (why.empty()) why = converse(dialled.fd.get(), reply, patience);
    switch (why.empty() ? reply.state() : GrpcReply::State::kOpen) {
        case GrpcReply::State::kOpen:
            discovery.why = "asking the master at " + where + ": " + why;
            break;
        case GrpcReply::State::kMessage:
            return read_discovery(master, reply.message());
        case GrpcReply::State::kRefused:
            discovery.why =
                where + " is a gRPC server but refused MasterService.Discover: no master, or not yet";
            break;
        case GrpcReply::State::kForeign:
            discovery.why = where + " is not a gRPC server";
            break;
        case GrpcReply::State::kBroken:
            discovery.why = where + " broke off the call, or the rules of HTTP/2";
            break;
    }
    return discovery;
}

Discovery read_discovery(const Endpoint& master, wire::Bytes message) {
    const std::string where = to_text(master);
    Discovery discovery;
    const auto reply = parse_reply(message);
    if (!reply || reply->master_uuid.size() != discovery.master.size() ||
        reply->software.size() > wire::kNameBytesMax) {
        discovery.why = where + " answered Discover with something that is not a master's answer";
        return discovery;
    }
    const auto lane = lane_of(reply->lane_endpoint, master);
    if (!lane) {
        discovery.why = where + " advertises a lane at '" + printable(reply->lane_endpoint) +
                        "', which is not an address";
        return discovery;
    }
    std::copy(reply->master_uuid.begin(), reply->master_uuid.end(), discovery.master.begin());
    if (reply->deposed_by_epoch != 0) {
        discovery.is_deposed = true;
        discovery.why = "the master at " + where + " stepped down: one of epoch " +
                        std::to_string(reply->deposed_by_epoch) + " reigns";
        return discovery;
    }
    discovery.found = true;
    discovery.lane = *lane;
    discovery.epoch = reply->epoch;
    discovery.software = reply->software;
    return discovery;
}

}  // namespace mooncake::net
