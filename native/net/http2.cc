#include "net/http2.h"

#include <algorithm>

namespace mooncake::net {

namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::size_t kHeadBytes = 9;
constexpr std::size_t kFrameBytesMax = 16'384;
constexpr std::size_t kMessageHeadBytes = 5;  // gRPC: compressed flag, u32 length

enum Type : std::uint8_t {
    kData = 0,
    kHeaders = 1,
    kRstStream = 3,
    kSettings = 4,
    kPing = 6,
    kGoAway = 7,
};
enum Flag : std::uint8_t { kAck = 1, kEndStream = 1, kEndHeaders = 4, kPadded = 8 };

void put_big_endian(wire::Buffer& buffer, std::uint32_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) buffer.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

std::uint32_t get_big_endian(wire::Bytes bytes) {
    std::uint32_t value = 0;
    for (const std::uint8_t byte : bytes) value = value << 8 | byte;
    return value;
}

void put_frame(wire::Buffer& buffer, Type type, std::uint8_t flags, std::uint32_t stream,
               wire::Bytes payload) {
    put_big_endian(buffer, static_cast<std::uint32_t>(payload.size()), 3);
    buffer.push_back(type);
    buffer.push_back(flags);
    put_big_endian(buffer, stream, 4);
    buffer.insert(buffer.end(), payload.begin(), payload.end());
}

// HPACK (RFC 7541): a string without Huffman coding, its length in 7 bits and then groups of 7.
void put_string(wire::Buffer& block, std::string_view text) {
    std::size_t length = text.size();
    if (length < 127) {
        block.push_back(static_cast<std::uint8_t>(length));
    } else {
        block.push_back(127);
        for (length -= 127; length >= 128; length /= 128) {
            block.push_back(static_cast<std::uint8_t>(length % 128 + 128));
        }
        block.push_back(static_cast<std::uint8_t>(length));
    }
    const wire::Bytes bytes = wire::as_bytes(text);
    block.insert(block.end(), bytes.begin(), bytes.end());
}

// A literal field with a new name that no table remembers.
void put_field(wire::Buffer& block, std::string_view name, std::string_view value) {
    block.push_back(0);
    put_string(block, name);
    put_string(block, value);
}

}  // namespace

wire::Buffer grpc_request(std::string_view authority, std::string_view path, std::uint64_t timeout_ms,
                          wire::Bytes message) {
    wire::Buffer block;
    put_field(block, ":method", "POST");
    put_field(block, ":scheme", "http");
    put_field(block, ":path", path);
    put_field(block, ":authority", authority);
    put_field(block, "te", "trailers");
    put_field(block, "content-type", "application/grpc");
    // The format allows eight digits.
    put_field(block, "grpc-timeout", std::to_string(std::min<std::uint64_t>(timeout_ms, 99'999'999)) + "m");

    wire::Buffer data;
    data.push_back(0);
    put_big_endian(data, static_cast<std::uint32_t>(message.size()), 4);
    data.insert(data.end(), message.begin(), message.end());

    wire::Buffer request;
    const wire::Bytes preface = wire::as_bytes(kPreface);
    request.insert(request.end(), preface.begin(), preface.end());
    put_frame(request, kSettings, 0, 0, {});
    put_frame(request, kHeaders, kEndHeaders, 1, block);
    put_frame(request, kData, kEndStream, 1, data);
    return request;
}

GrpcReply::State GrpcReply::add(wire::Bytes bytes, wire::Buffer& answer) {
    if (state_ != State::kOpen) return state_;
    received_ += bytes.size();
    if (received_ > kReplyBytesMax) return state_ = has_settings_ ? State::kBroken : State::kForeign;
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
    std::size_t at = 0;
    while (state_ == State::kOpen && pending_.size() - at >= kHeadBytes) {
        const wire::Bytes rest = wire::Bytes(pending_).subspan(at);
        const std::size_t length = get_big_endian(rest.first(3));
        const std::uint8_t type = rest[3];
        const std::uint8_t flags = rest[4];
        const std::uint32_t stream = get_big_endian(rest.subspan(5, 4)) & 0x7FFFFFFF;
        // A server's first frame is its settings; anything else is another protocol's greeting.
        if (!has_settings_ && (type != kSettings || stream != 0 || length > kFrameBytesMax)) {
            return state_ = State::kForeign;
        }
        if (length > kFrameBytesMax) return state_ = State::kBroken;
        if (rest.size() < kHeadBytes + length) break;
        state_ = take_frame(type, flags, stream, rest.subspan(kHeadBytes, length), answer);
        at += kHeadBytes + length;
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(at));
    return state_;
}

GrpcReply::State GrpcReply::take_frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                                       wire::Bytes payload, wire::Buffer& answer) {
    switch (type) {
        case kSettings:
            has_settings_ = true;
            if ((flags & kAck) == 0) put_frame(answer, kSettings, kAck, 0, {});
            return State::kOpen;
        case kPing:
            if (payload.size() != 8) return State::kBroken;
            if ((flags & kAck) == 0) put_frame(answer, kPing, kAck, 0, payload);
            return State::kOpen;
        case kGoAway:
            return State::kBroken;
        case kRstStream:
            return stream == 1 ? State::kRefused : State::kOpen;
        case kHeaders:  // the answer's, or the trailers; their content does not matter to us
            return stream == 1 && (flags & kEndStream) != 0 ? State::kRefused : State::kOpen;
        case kData:
            return stream == 1 ? take_data(flags, payload) : State::kBroken;
        default:  // window updates, priorities, what later versions add
            return State::kOpen;
    }
}

GrpcReply::State GrpcReply::take_data(std::uint8_t flags, wire::Bytes payload) {
    if ((flags & kPadded) != 0) {
        if (payload.empty() || payload[0] >= payload.size()) return State::kBroken;
        payload = payload.subspan(1, payload.size() - 1 - payload[0]);
    }
    data_.insert(data_.end(), payload.begin(), payload.end());
    if (data_.size() >= kMessageHeadBytes) {
        const std::size_t length = get_big_endian(wire::Bytes(data_).subspan(1, 4));
        // We offered no compression.
        if (data_[0] != 0 || length > kReplyBytesMax) return State::kBroken;
        if (data_.size() >= kMessageHeadBytes + length) return State::kMessage;
    }
    return (flags & kEndStream) != 0 ? State::kRefused : State::kOpen;
}

wire::Bytes GrpcReply::message() const {
    const wire::Bytes data(data_);
    return data.subspan(kMessageHeadBytes, get_big_endian(data.subspan(1, 4)));
}

}  // namespace mooncake::net
