// What a client or node reads before it knows a master: the HTTP/2 of a server that may be anything, the
// message in it, and addresses in text.
#include "fuzz.h"
#include "net/discover.h"
#include "net/endpoint.h"
#include "net/http2.h"

namespace {

using namespace mooncake;
using fuzz::Input;
using fuzz::Script;

enum Kind : std::uint8_t { kHttp2, kMessage, kEndpoint, kKinds };

const net::Endpoint kMaster{"master", 50051};

void read_message(wire::Bytes message) {
    const auto discovery = net::read_discovery(kMaster, message);
    REQUIRE(discovery.found == discovery.why.empty());
    if (discovery.found) REQUIRE(discovery.lane.port != 0 && !discovery.lane.host.empty());
}

// The same bytes in pieces of any size come to the same.
void read_http2(Input& input) {
    const std::size_t piece = input.u8() + std::size_t{1};
    net::GrpcReply reply;
    net::GrpcReply at_once;
    wire::Buffer answer;
    wire::Buffer answer_at_once;
    const wire::Bytes bytes = input.rest();
    at_once.add(bytes, answer_at_once);
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
        reply.add(bytes.subspan(at, std::min(piece, bytes.size() - at)), answer);
    }
    // Acknowledgements are small, and never more than what they acknowledge.
    REQUIRE(answer.size() <= bytes.size());
    REQUIRE(reply.state() == at_once.state() || bytes.size() > net::GrpcReply::kReplyBytesMax);
    if (reply.state() == net::GrpcReply::State::kMessage) read_message(reply.message());
}

void read_endpoint(wire::Bytes bytes) {
    const auto endpoint = net::parse_endpoint(wire::as_text(bytes));
    if (!endpoint) return;
    const auto again = net::parse_endpoint(net::to_text(*endpoint));
    REQUIRE(again && again->host == endpoint->host && again->port == endpoint->port);
}

wire::Buffer http2_frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream, wire::Bytes payload) {
    wire::Buffer frame;
    for (int shift = 16; shift >= 0; shift -= 8)
        frame.push_back(static_cast<std::uint8_t>(payload.size() >> shift));
    frame.push_back(type);
    frame.push_back(flags);
    for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<std::uint8_t>(stream >> shift));
    frame.insert(frame.end(), payload.begin(), payload.end());
    return frame;
}

// A DiscoverReply as protobuf writes it.
wire::Buffer discover_reply(std::string_view lane) {
    wire::Buffer message;
    const auto text = [&](std::uint8_t field, std::string_view value) {
        message.push_back(static_cast<std::uint8_t>(field << 3 | 2));
        message.push_back(static_cast<std::uint8_t>(value.size()));
        message.insert(message.end(), value.begin(), value.end());
    };
    text(1, lane);
    message.insert(message.end(), {2 << 3, 0x85, 0x01});
    text(3, "0123456789abcdef");
    text(4, "1.0");
    message.insert(message.end(), {9 << 3 | 5, 1, 2, 3, 4, 10 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8});
    return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input({data, size});
    switch (input.below(kKinds)) {
        case kHttp2:
            read_http2(input);
            break;
        case kMessage:
            read_message(input.rest());
            break;
        default:
            read_endpoint(input.rest());
    }
    return 0;
}

std::vector<std::pair<std::string, wire::Buffer>> fuzz::seeds() {
    const wire::Buffer message = discover_reply(":50052");
    wire::Buffer data{0, 0, 0, 0, static_cast<std::uint8_t>(message.size())};
    data.insert(data.end(), message.begin(), message.end());
    wire::Buffer padded{3};
    padded.insert(padded.end(), data.begin(), data.end());
    padded.insert(padded.end(), 3, 0);
    const wire::Buffer settings = http2_frame(4, 0, 0, {});
    const wire::Buffer ping = http2_frame(6, 0, 0, wire::Buffer(8, 1));
    const wire::Buffer headers = http2_frame(1, 4, 1, wire::Buffer{0x88});
    return {
        {"reply", Script().u8(kHttp2).u8(255).bytes(settings).bytes(ping).bytes(headers).bytes(
                      http2_frame(0, 0, 1, data))},
        {"padded",
         Script().u8(kHttp2).u8(3).bytes(settings).bytes(headers).bytes(http2_frame(0, 8 | 1, 1, padded))},
        {"two_frames", Script()
                           .u8(kHttp2)
                           .u8(0)
                           .bytes(settings)
                           .bytes(http2_frame(0, 0, 1, wire::Bytes(data).first(7)))
                           .bytes(http2_frame(8, 0, 0, wire::Buffer(4, 1)))
                           .bytes(http2_frame(0, 1, 1, wire::Bytes(data).subspan(7)))},
        {"trailers_only", Script().u8(kHttp2).u8(9).bytes(settings).bytes(http2_frame(1, 5, 1, {}))},
        {"reset", Script().u8(kHttp2).u8(9).bytes(settings).bytes(http2_frame(3, 0, 1, wire::Buffer(4, 0)))},
        {"goaway", Script().u8(kHttp2).u8(9).bytes(settings).bytes(http2_frame(7, 0, 0, wire::Buffer(8, 0)))},
        {"foreign", Script().u8(kHttp2).u8(9).bytes(wire::as_bytes("HTTP/1.1 400 Bad Request\r\n\r\n"))},
        {"message", Script().u8(kMessage).bytes(message)},
        {"message_with_host", Script().u8(kMessage).bytes(discover_reply("tcp://10.0.0.7:41234"))},
        {"message_with_port_zero", Script().u8(kMessage).bytes(discover_reply("[::]:0"))},
        {"endpoint", Script().u8(kEndpoint).bytes(wire::as_bytes("tcp://node-1.example:65535"))},
        {"endpoint_v6", Script().u8(kEndpoint).bytes(wire::as_bytes("[fe80::1%eth0]:1"))},
    };
}
