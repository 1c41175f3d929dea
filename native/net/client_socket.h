// A blocking framed connection for callers that wait: the client driver's side of the lane and of the data
// plane. Every wait has a deadline; nothing here spins. Not thread-safe: one owner at a time.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/dial.h"
#include "net/endpoint.h"
#include "net/shared_memory.h"
#include "net/view_link.h"
#include "wire/frame.h"

namespace mooncake::net {

enum class IoResult : std::uint8_t { kDone, kWouldBlock, kDeadline, kClosed, kMalformed };

class ClientDial;

// What is received at a time when somebody looks at it at once: a core's own cache holds it beside the
// kernel's copy, and one system call more for so many bytes costs nothing.
inline constexpr std::size_t kHotBytes = 256u << 10;

class ClientSocket {
  public:
    // Dials and exchanges hello and welcome. nullptr and `why` on failure; status tells a refusal's code.
    static std::unique_ptr<ClientSocket> connect(const Endpoint& endpoint, const wire::Hello& hello,
                                                 const Patience& patience, std::string& why,
                                                 wire::Status& status);
    // The same of a dial that has begun.
    static std::unique_ptr<ClientSocket> connect(ClientDial& dial, const Patience& patience, std::string& why,
                                                 wire::Status& status);
    ~ClientSocket();
    ClientSocket(const ClientSocket&) = delete;
    ClientSocket& operator=(const ClientSocket&) = delete;

    // Whole transfers; kDeadline at the end of patience. A target may be written to until the call returns,
    // never after.
    IoResult send_all(std::span<iovec> pieces, const Patience& patience);
    // One frame: header and body; body stays valid until the next receive. Bytes read beyond it are kept for
    // the next call.
    IoResult receive_frame(wire::FrameHeader& header, wire::Bytes& body, const Patience& patience);
    // A null iov_base discards that many bytes. The entries are used up as bytes arrive.
    IoResult receive_into(std::span<iovec> targets, const Patience& patience);

    // The same without waiting, for callers that poll several sockets: as much as goes now; `pieces` is
    // advanced past what was moved. kWouldBlock: poll fd() and call again.
    IoResult try_send(std::span<iovec>& pieces);
    IoResult try_receive_frame(wire::FrameHeader& header, wire::Bytes& body);
    // received: hears of every piece that was added, of at most kHotBytes, while it is still in the cache.
    using Received = std::function<void(std::size_t bytes)>;
    IoResult try_receive_into(std::span<iovec>& targets, const Received& received = {});

    int fd() const;
    const wire::Uuid& peer_process() const;
    std::uint64_t next_request_id();
    // The peer's, where this is a Unix socket to a node that lends it; else nullptr.
    const std::shared_ptr<const SharedMemory>& memory() const;
    // What views of that memory hold, made when first asked for: amid an exchange.
    const std::shared_ptr<ViewLink>& share_link();
    ViewLink* link();  // nullptr: nobody asked
    const std::string& error()
        const;                 // after anything but kDone or kWouldBlock: the address and what happened
    bool has_unread() const;   // bytes that were received and that nobody took
    bool is_reusable() const;  // as far as can be told without asking the kernel
    bool is_idle_healthy();    // nothing unread and not closed by the peer: fit to be reused
    void shutdown();           // any thread: wakes a blocked owner, whose call then answers kClosed

  private:
    friend class ClientDial;
    struct State;
    explicit ClientSocket(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

// ClientSocket::connect without waiting, for callers that poll several at once.
class ClientDial {
  public:
    ClientDial(const Endpoint& endpoint, const wire::Hello& hello, std::uint64_t deadline_ms);
    // Of a connection that is open already, or could not be had: only hello is exchanged on it.
    ClientDial(const Endpoint& endpoint, Dialled opened, const wire::Hello& hello, std::uint64_t deadline_ms);
    ~ClientDial();

    // Before the first advance(), of a Unix socket to a node: its memory is mapped, unless it is known.
    void share_memory(std::shared_ptr<const SharedMemory> known);
    bool is_local() const { return is_local_; }

    // kWouldBlock: poll fd() for events(), until due_ms() at most, and call again. kDone: take(). Anything
    // else: why() and status().
    IoResult advance();
    int fd() const;
    short events() const;
    std::uint64_t due_ms() const;
    std::unique_ptr<ClientSocket> take() { return std::move(socket_); }
    const Endpoint& endpoint() const { return endpoint_; }
    const std::string& why() const { return why_; }
    wire::Status status() const { return status_; }

  private:
    void pack(const wire::Hello& hello);
    IoResult exchange_hello();
    IoResult take_welcome(const wire::FrameHeader& answer, wire::Bytes body);
    IoResult take_memory(const wire::FrameHeader& answer, wire::Bytes body);
    IoResult fail(IoResult result, wire::Status status, const std::string& why);

    const Endpoint endpoint_;
    const std::uint64_t deadline_ms_;
    std::optional<Dialling> dialling_;  // nullopt: opened_ is its outcome
    Dialled opened_;
    std::unique_ptr<ClientSocket> socket_;  // from the end of the dial on
    wire::Buffer hello_;
    iovec piece_{};
    std::span<iovec> unsent_;
    bool is_local_ = false;
    bool is_welcome_ = false;
    std::shared_ptr<const SharedMemory> memory_;
    std::vector<FileDescriptor> descriptors_;  // as they come with the memory
    std::string why_;
    wire::Status status_ = wire::Status::kOk;
};

}  // namespace mooncake::net
