// A framed connection on an event loop, for servers and for a node's connection to its master: takes frames
// in, sends frames out, receives and sends payload straight from and into the caller's memory.
//
// Owns the socket and the bounds on what a peer may do to us; knows the frame's header, not what any verb
// means.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/event_loop.h"
#include "net/file_descriptor.h"
#include "wire/frame.h"

namespace mooncake::net {

struct ConnectionLimits {
    std::size_t body_bytes_max = wire::kBodyBytesMax;
    std::uint64_t hello_timeout_ms = 5'000;   // from accept to the first whole frame
    std::uint64_t frame_timeout_ms = 10'000;  // from a frame's first byte to its last, payload excluded
    std::uint64_t payload_stall_ms = 10'000;  // receiving payload without progress
    std::uint64_t send_stall_ms = 10'000;     // sending without progress: the connection ends
    std::size_t outgoing_bytes_max =
        64u << 20;  // heads and owned bodies queued; beyond it we stop reading the peer
};

class Connection;

// One a connection; on_* are called on the connection's loop, as are `sent` and `done`, and none of them from
// inside send, receive_payload or close: it is safe to hold a lock across those. When a connection ends, what
// was not sent or received is answered false first, then on_close comes; after it nothing is called any more
// and the handler is destroyed. An exception from on_frame ends the connection.
class ConnectionHandler {
  public:
    virtual ~ConnectionHandler() = default;
    // `body` is valid during the call. May call receive_payload, send, close.
    virtual void on_frame(Connection& connection, const wire::FrameHeader& header, wire::Bytes body) = 0;
    virtual void on_close(Connection& connection, std::string_view reason) = 0;
    // Before on_close: the peer sent what is no frame, or something and not even one whole frame.
    virtual void on_garbage(Connection&) {}
    // The peer looks at memory of ours for as long as its end is open: the connection does not end before
    // that, whatever the reason. It only stops to be served.
    virtual bool is_looked_through() const { return false; }
};

// A frame to send: `head` is owned; `payload` points to memory that must stay valid and unchanged until
// `sent` is called, exactly once, with true (all bytes are in the kernel) or false (the connection ended
// first). Frames given within one on_frame, or while several frames wait to be handled, leave together.
struct Outgoing {
    wire::Buffer head;
    std::vector<iovec> payload;
    std::function<void(bool)> sent;
    std::vector<FileDescriptor> descriptors = {};  // over a Unix socket: sent along with the head
};

class Connection : public std::enable_shared_from_this<Connection> {
  public:
    virtual ~Connection() = default;

    // Any thread, in order. After the end of the connection the frame is dropped (and `sent(false)` called).
    virtual void send(wire::Buffer frame) = 0;
    virtual void send(Outgoing frame) = 0;

    // Loop thread, from on_frame: the next bytes of the stream fill `targets` in order (a null iov_base
    // discards that many bytes); `done(true)` when the last byte is there, `done(false)` if the connection
    // ended first, in which case the targets are not written to any more. No frame is read before that.
    virtual void receive_payload(std::vector<iovec> targets, std::function<void(bool)> done) = 0;

    // Any thread. What is queued is dropped unless `after_sending`. A peer that closes, even only its sending
    // half, ends the connection.
    virtual void close(std::string reason, bool after_sending = false) = 0;

    virtual EventLoop& loop() = 0;
    virtual std::string peer() const = 0;  // "10.0.0.7:41234"
    virtual std::uint64_t id() const = 0;  // unique in the process
    // Whose process dialled it, where that is known: over a Unix socket.
    virtual std::optional<std::uint32_t> peer_user() const { return std::nullopt; }
};

using HandlerFactory = std::function<std::unique_ptr<ConnectionHandler>()>;

// Listens on host:port (port 0: any; "::" also takes IPv4) and gives each accepted connection to a loop,
// round robin. Raises std::system_error naming host and port when it cannot bind. At most `connections_max`;
// more are closed at once. `loops` must outlive it, though they may be stopped before it. The factory is
// called on the loop of the connection that its handler is for.
class Server {
  public:
    struct Options {
        std::string host = "0.0.0.0";
        std::uint16_t port = 0;
        std::string local_name = {};  // instead of them: the abstract name of a Unix socket
        int backlog = 4096;
        std::size_t connections_max = 16'384;
        ConnectionLimits limits;
    };
    Server(LoopThreads& loops, Options options, HandlerFactory factory);
    ~Server();
    // Stops listening and ends every connection; returns when on_close has been called for all. Idempotent;
    // not from a loop's thread.
    void stop();
    std::uint16_t port() const;
    std::size_t connection_count() const;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

// Dials host:port without blocking; any thread. `connected` is called once on the loop: with the connection
// (its handler is already in place; it says hello itself, and the first frame of the peer must come within
// hello_timeout_ms) or with nullptr and why, naming the address. When the loop has ended already it is called
// by this function.
void connect(EventLoop& loop, const std::string& host, std::uint16_t port, std::uint64_t timeout_ms,
             const ConnectionLimits& limits, std::unique_ptr<ConnectionHandler> handler,
             std::function<void(std::shared_ptr<Connection>, std::string)> connected);
// The same; `connected` is also told whether every address of the host refused: a machine is there, and
// nobody listens.
void connect(EventLoop& loop, const std::string& host, std::uint16_t port, std::uint64_t timeout_ms,
             const ConnectionLimits& limits, std::unique_ptr<ConnectionHandler> handler,
             std::function<void(std::shared_ptr<Connection>, std::string, bool)> connected);

}  // namespace mooncake::net
