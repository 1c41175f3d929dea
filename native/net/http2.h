// The few frames of HTTP/2 (RFC 9113) that one unary gRPC call from a client needs: what to send for it, and
// a reader of what comes back. Bytes in, bytes out: knows no sockets and nothing of any method.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "wire/bytes.h"

namespace mooncake::net {

// Preface, settings, request headers and the one message, ready to be sent.
wire::Buffer grpc_request(std::string_view authority, std::string_view path, std::uint64_t timeout_ms,
                          wire::Bytes message);

// Takes the server's bytes as they come. Bounded: frames of at most 16 KiB (the protocol's default, which we
// do not raise) and kReplyBytesMax in all, whatever they hold.
class GrpcReply {
  public:
    enum class State : std::uint8_t {
        kOpen,     // needs more bytes
        kMessage,  // message() is whole
        kRefused,  // the call ended without a message: its status was not OK
        kForeign,  // this is not HTTP/2
        kBroken,   // it is, but it broke the rules or a bound, or the server is going away
    };
    static constexpr std::size_t kReplyBytesMax = 64u << 10;

    // Bytes to send back (acknowledgements) are appended to `answer`.
    State add(wire::Bytes bytes, wire::Buffer& answer);
    State state() const { return state_; }
    bool has_settings() const { return has_settings_; }  // it is an HTTP/2 server, then
    wire::Bytes message() const;

  private:
    State take_frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream, wire::Bytes payload,
                     wire::Buffer& answer);
    State take_data(std::uint8_t flags, wire::Bytes payload);

    State state_ = State::kOpen;
    bool has_settings_ = false;
    std::size_t received_ = 0;
    wire::Buffer pending_;  // an unfinished frame
    wire::Buffer data_;     // the call's DATA
};

}  // namespace mooncake::net
