// The part of an operating system that the product uses to talk to others: sockets, epoll and eventfds, over
// a network whose weather (weather.h) the simulation makes.
//
// Owns descriptors and the bytes between them. A connection is two pipes; bytes in one never overtake each
// other, those of different connections may. Calls answer as Linux does: a count, or -1 and errno.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weather.h"
#include "world.h"

namespace simulation {

// Descriptors from here on are ours; the real kernel gives the lowest free ones and few are in use.
inline constexpr int kFirstFd = 256;

struct Address {
    std::uint32_t host = 0;
    std::uint16_t port = 0;
    bool operator==(const Address&) const = default;
    auto operator<=>(const Address&) const = default;
};

struct Epoll;

struct File {
    virtual ~File() = default;
    virtual std::uint32_t ready() const { return 0; }  // EPOLL flags
    virtual void closed() {}

    void changed();  // something may be ready: wakes who polls it
    WaitList pollers;
    std::vector<std::weak_ptr<Epoll>> watchers;
};

struct EventFd final : File {
    std::uint64_t count = 0;
    std::uint32_t ready() const override { return (count > 0 ? EPOLLIN : 0U) | EPOLLOUT; }
};

struct Epoll final : File {
    struct Watch {
        std::weak_ptr<File> file;
        epoll_event event{};
    };
    std::map<int, Watch> watches;  // by fd
    WaitList waiters;
};

struct Socket;
using SocketPtr = std::shared_ptr<Socket>;

struct Socket final : File, std::enable_shared_from_this<Socket> {
    enum class State : std::uint8_t { kNew, kListening, kConnecting, kConnected, kFailed, kClosed };

    std::uint32_t ready() const override;
    void closed() override;

    Host* host = nullptr;
    std::uint64_t connection = 0;  // the same at both ends
    bool is_dialler = false;
    State state = State::kNew;
    Address local;
    Address remote;
    int error = 0;
    bool is_blocking = false;
    Ms receive_timeout_ms = kNever;
    bool is_severed = false;  // its process died: nothing leaves it and nothing gets to it
    bool is_broken = false;   // what is sent from here vanishes
    std::deque<SocketPtr> accepted;

    SocketPtr other;
    std::size_t window = 0;  // bytes to us under way or unread, at most
    struct Segment {
        Ms arrival_ms = 0;
        std::vector<std::uint8_t> bytes;
        bool is_end = false;
        std::uint64_t order = 0;  // in which all segments were sent
    };
    std::deque<Segment> under_way;  // to us
    std::size_t in_flight = 0;      // bytes of it
    std::deque<std::vector<std::uint8_t>> unread;
    std::size_t unread_from = 0;  // of the first of them
    std::size_t unread_bytes = 0;
    bool has_end = false;  // the other end sends no more, and all of it is here
    bool is_shut = false;  // we send no more
};

class Kernel {
  public:
    // `sent` sees the bytes of every connection when their sender hands them over.
    using Sent = std::function<void(const Socket& from, std::span<const std::uint8_t> bytes)>;
    Kernel(World& world, std::unique_ptr<Weather> weather, std::vector<std::size_t> window_bytes,
           FaultCounts& counts, Sent sent);
    ~Kernel();
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

    static Kernel* current();

    // The host's process ends here and now. With `is_told` its kernel lives and tells the peers.
    void sever(Host& host, bool is_told);
    // The host is back: peers that still believe in old connections are told.
    void revive(Host& host);
    std::size_t open_files() const { return files_.size(); }

    int socket(int type);
    int bind(int fd, const sockaddr* address);
    int listen(int fd);
    int accept(int fd);
    int connect(int fd, const sockaddr* address);
    int name(int fd, sockaddr* address, socklen_t* length, bool is_local);
    int get_option(int fd, int level, int option, void* value);
    int set_option(int fd, int level, int option, const void* value);
    int set_flags(int fd, int flags);
    ssize_t send(int fd, std::span<const iovec> pieces, int flags);
    ssize_t receive(int fd, std::span<const iovec> pieces, int flags);
    int shutdown(int fd, int how);
    int close(int fd);
    int eventfd(unsigned count);
    ssize_t read_event(int fd, void* into);
    ssize_t write_event(int fd, const void* from);
    int epoll_create();
    int epoll_control(int epoll, int operation, int fd, const epoll_event* event);
    int epoll_wait(int epoll, std::span<epoll_event> events, int timeout_ms);
    int poll(std::span<pollfd> entries, int timeout_ms);

  private:
    int install(std::shared_ptr<File> file);
    template <class Kind>
    std::shared_ptr<Kind> get(int fd);
    Ms deadline(int timeout_ms) const;
    Host* host_at(std::uint32_t address);
    void arrive_at_listener(const SocketPtr& from);
    void refuse(const SocketPtr& from);
    void travel(const SocketPtr& to, Socket::Segment segment);
    void land(const SocketPtr& to);
    void send_end(const SocketPtr& from);
    static void part(const SocketPtr& socket);
    void reset(const SocketPtr& to, Ms delay_ms);
    Fate fate(const Socket& from, const Socket& to, std::size_t bytes);

    World& world_;
    Random& random_;
    std::unique_ptr<Weather> weather_;
    const std::vector<std::size_t> window_bytes_;
    FaultCounts& counts_;
    Sent sent_;
    std::map<int, std::shared_ptr<File>> files_;
    std::map<Address, std::weak_ptr<Socket>> listeners_;
    std::vector<std::weak_ptr<Socket>> sockets_;
    std::uint64_t connections_ = 0;
    std::uint64_t segments_ = 0;
    std::map<std::pair<const Host*, const Host*>, std::uint64_t> last_landed_;  // by sender and receiver
    std::uint16_t last_port_ = 30'000;
};

}  // namespace simulation
