// The one implementation of Connection: a stream socket on a loop.
//
// All its state but `incoming_` belongs to the loop's thread. Callbacks to others (on_frame, sent, done,
// on_close) are made from the loop only, never from inside send, receive_payload or close; a Dispatch is on
// the stack whenever one runs, and what it leads to (flushing, further callbacks, the end) happens when the
// outermost Dispatch ends.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/connection.h"
#include "net/file_descriptor.h"
#include "net/receive_buffer.h"

namespace mooncake::net {

class SocketConnection final : public Connection, public FdHandler {
  public:
    using Ended = std::function<void(std::uint64_t id)>;  // the last thing called, after on_close

    // `ended` may be empty. `socket` is connected and non-blocking.
    SocketConnection(EventLoop& loop, FileDescriptor socket, const ConnectionLimits& limits,
                     std::size_t first_body_max, std::unique_ptr<ConnectionHandler> handler, Ended ended);
    void start();  // loop thread, once: from here on it keeps itself alive until its end

    void send(wire::Buffer frame) override;
    void send(Outgoing frame) override;
    void receive_payload(std::vector<iovec> targets, std::function<void(bool)> done) override;
    void close(std::string reason, bool after_sending) override;
    EventLoop& loop() override { return loop_; }
    std::string peer() const override { return peer_; }
    std::uint64_t id() const override { return id_; }
    std::optional<std::uint32_t> peer_user() const override { return peer_user_; }

    void on_events(std::uint32_t events) override;
    bool on_sweep(std::uint64_t now_ms) override;
    void on_loop_end() override;

  private:
    class Dispatch;
    struct Queued {
        Outgoing frame;
        std::size_t counted_bytes = 0;  // what it adds to outgoing_bytes_
        std::size_t head_sent = 0;
        std::size_t pieces_sent = 0;  // of frame.payload; the next one is advanced in place
    };
    // kLookedThrough: over, but for the peer's end (ConnectionHandler::is_looked_through).
    enum class Ending : std::uint8_t { kNo, kAfterSending, kLingering, kLookedThrough, kNow, kEnded };

    void receive();
    void process();
    bool process_payload();
    bool process_frame();
    void discard_input();
    void enqueue(Outgoing frame);
    void take_incoming();
    void flush();
    std::size_t gather(std::span<iovec> pieces, bool& more);
    void sent_bytes(std::size_t n);
    void settle();
    void advance_ending();
    void stop_serving();
    void give_up_transfers();
    void finish();
    void end(std::string reason);
    void schedule();
    void update_interest();
    void update_receive_mark();
    bool is_reading() const { return ending_ == Ending::kNo && !paused_; }

    EventLoop& loop_;
    FileDescriptor socket_;
    const ConnectionLimits limits_;
    const std::string peer_;
    const std::optional<std::uint32_t> peer_user_;
    const std::uint64_t id_;
    std::unique_ptr<ConnectionHandler> handler_;
    Ended ended_;
    std::shared_ptr<Connection> self_;

    // Receiving.
    ReceiveBuffer buffer_;
    std::size_t body_max_;    // of the next frame: small until the first has come
    std::size_t wanted_ = 0;  // bytes that the frame being received takes in all, once known
    bool paused_ = false;     // too much waits to be sent
    std::vector<iovec> targets_;
    std::span<iovec> targets_left_;
    std::function<void(bool)> done_;
    bool receiving_payload_ = false;
    bool is_payload_slow_ = false;  // what is received comes in dribs and drabs
    int receive_mark_ = 1;          // bytes below which the socket does not count as readable

    // Sending.
    std::deque<Queued> queue_;
    std::size_t outgoing_bytes_ = 0;
    std::size_t send_budget_ = 0;  // bytes that this dispatch may still send
    bool blocked_ = false;         // the socket takes no more until EPOLLOUT
    std::vector<std::function<void(bool)>> completed_;
    bool sent_garbage_ = false;  // the peer did
    bool peer_closed_ = false;

    // Deadlines, as the time they count from; 0 = not running.
    std::uint64_t hello_since_ms_ = 0;
    std::uint64_t frame_since_ms_ = 0;
    std::uint64_t payload_since_ms_ = 0;
    std::uint64_t send_since_ms_ = 0;
    std::uint64_t linger_since_ms_ = 0;

    int dispatching_ = 0;
    bool scheduled_ = false;
    bool watched_ = false;
    std::uint32_t interest_ = 0;
    Ending ending_ = Ending::kNo;
    std::string reason_;

    std::mutex incoming_mutex_;  // guards the two below; no other lock but the loop's is taken under it
    std::vector<Outgoing> incoming_;
    bool refusing_ = false;  // ended: nothing is taken any more
    std::atomic<bool> has_incoming_ = false;
};

}  // namespace mooncake::net
