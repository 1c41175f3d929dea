// One blocking connection to a master's lane, and the bodies that the works send on it.
//
// Owns a socket, a session and its sequence numbers. Knows the frames; decides nothing. Whatever the master
// answers that no work expects ends the process with what it was.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/file_descriptor.h"
#include "wire/control.h"
#include "wire/frame.h"
#include "wire/lane.h"

namespace mooncake::bench {

[[noreturn]] void fail(const std::string& why);

struct Target {
    std::string host;
    std::uint16_t port = 0;
};

std::uint64_t now_ns();

// Key number i of every work: 115 bytes, of which an engine's are a model's name and ranks, then a hash.
inline constexpr std::size_t kKeyBytes = 115;
class Key {
  public:
    explicit Key(std::uint64_t number);
    std::string_view text() const { return {text_, kKeyBytes}; }

  private:
    char text_[kKeyBytes];
};

class Peer {
  public:
    // Connects, says hello and opens a session.
    Peer(const Target& target, wire::Role role);

    wire::Prefix prefix() const { return {session_, 0, 0, 0}; }
    wire::Prefix next_prefix() { return {session_, ++sequence_, 0, 0}; }
    wire::SessionId session() const { return session_; }
    const wire::Uuid& process() const { return process_; }
    std::uint64_t epoch() const { return epoch_; }
    int fd() const { return socket_.get(); }

    // A whole request frame.
    wire::Buffer frame(wire::Verb verb, const std::function<void(wire::Writer&)>& body);
    void send(wire::Bytes frame);
    // The next frame; `body` is valid until the next call.
    wire::FrameHeader receive(wire::Bytes& body);
    // Sends and waits for the answer, which must be OK; frames that are no answers go to `commanded`.
    wire::Bytes ask(wire::Verb verb, const std::function<void(wire::Writer&)>& body);
    std::function<void(const wire::FrameHeader&, wire::Bytes)> commanded;

  private:
    net::FileDescriptor socket_;
    wire::Uuid process_{};
    wire::SessionId session_ = 0;
    std::uint64_t sequence_ = 0;
    std::uint64_t request_id_ = 0;
    std::uint64_t epoch_ = 0;
    wire::Buffer received_;
};

// Keys [from, from + count) as a batch's views; the texts live as long as this does.
class KeyBatch {
  public:
    void clear() {
        keys_.clear();
        views_.clear();
    }
    void add(std::uint64_t number) { keys_.emplace_back(number); }
    std::span<const std::string_view> views();

  private:
    std::vector<Key> keys_;
    std::vector<std::string_view> views_;
};

}  // namespace mooncake::bench
