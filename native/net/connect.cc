// net::connect: a Dialer walks the addresses of a host on the loop and becomes a connection.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "net/address.h"
#include "net/connection.h"
#include "net/socket_connection.h"

namespace mooncake::net {

namespace {

// A refusal's text may be as long as the largest hello, after its length.
constexpr std::size_t kFirstBodyMax = wire::kHelloBytesMax + 64;

using Connected = std::function<void(std::shared_ptr<Connection>, std::string, bool was_refused)>;

class Dialer final : public FdHandler, public std::enable_shared_from_this<Dialer> {
  public:
    Dialer(EventLoop& loop, Endpoint endpoint, const ConnectionLimits& limits,
           std::unique_ptr<ConnectionHandler> handler, Connected connected)
        : loop_(loop),
          endpoint_(std::move(endpoint)),
          limits_(limits),
          handler_(std::move(handler)),
          connected_(std::move(connected)) {}

    // Called instead of start() when the loop has ended.
    void refuse(const std::string& why) { connected_(nullptr, to_text(endpoint_) + ": " + why, false); }

    void start(std::uint64_t timeout_ms) {
        self_ = shared_from_this();
        deadline_ms_ = monotonic_ms() + timeout_ms;
        timer_ = loop_.call_after(timeout_ms, [this] { fail("not connected within the deadline"); });
        resolution_ = Resolution::start(endpoint_);
        if (resolution_->ready()) {
            resolved();
        } else {
            watch(resolution_->fd(), EPOLLIN);
        }
    }

    void on_events(std::uint32_t) override {
        const auto alive = shared_from_this();
        unwatch();
        if (!socket_) {
            resolved();
        } else if (const int error = finish_connect(socket_.get()); error != 0) {
            note(error);
            try_next();
        } else {
            succeed();
        }
    }

    void on_loop_end() override {
        const auto alive = shared_from_this();
        fail("the event loop has stopped");
    }

  private:
    void resolved() {
        std::string why;
        addresses_ = resolution_->take(why);
        if (addresses_.empty()) return finish(nullptr, why);
        try_next();
    }

    void try_next() {
        while (next_ < addresses_.size()) {
            const Address& address = addresses_[next_++];
            socket_ = new_socket(address.storage.ss_family);
            const int started = socket_ ? start_connect(socket_.get(), address) : errno;
            if (started == 0) return succeed();
            if (started == EINPROGRESS) {
                watch(socket_.get(), EPOLLOUT);
                const std::uint64_t share =
                    share_ms(monotonic_ms(), deadline_ms_, addresses_.size() - next_ + 1);
                if (next_ < addresses_.size()) {
                    step_ = loop_.call_after(share, [this] { give_up_address(); });
                }
                return;
            }
            note(started);
        }
        finish(nullptr, why_);
    }

    void give_up_address() {
        step_ = 0;
        unwatch();
        note(ETIMEDOUT);
        try_next();
    }

    void note(int error) {
        if (!why_.empty()) why_ += "; ";
        why_ += addresses_[next_ - 1].text() + ": " + errno_text(error);
        if (error == ECONNREFUSED) ++refusals_;
        socket_.reset();
    }

    void fail(const std::string& what) {
        timer_ = 0;
        finish(nullptr, (why_.empty() ? "" : why_ + "; ") + to_text(endpoint_) + ": " + what);
    }

    void succeed() {
        auto connection = std::make_shared<SocketConnection>(loop_, std::move(socket_), limits_,
                                                             kFirstBodyMax, std::move(handler_), nullptr);
        connection->start();
        finish(std::move(connection), "");
    }

    void finish(std::shared_ptr<Connection> connection, std::string why) {
        unwatch();
        if (timer_ != 0) loop_.cancel(timer_);
        timer_ = 0;
        socket_.reset();
        const auto alive = std::move(self_);
        if (const auto connected = std::exchange(connected_, nullptr)) {
            connected(std::move(connection), why, refusals_ > 0 && refusals_ == addresses_.size());
        }
        handler_.reset();
    }

    void watch(int fd, std::uint32_t events) {
        loop_.watch(fd, events, *this);
        watched_fd_ = fd;
    }

    void unwatch() {
        if (watched_fd_ >= 0) loop_.unwatch(watched_fd_);
        watched_fd_ = -1;
        if (step_ != 0) loop_.cancel(step_);
        step_ = 0;
    }

    EventLoop& loop_;
    const Endpoint endpoint_;
    const ConnectionLimits limits_;
    std::unique_ptr<ConnectionHandler> handler_;
    Connected connected_;
    std::shared_ptr<Dialer> self_;  // until `connected_` was called
    std::shared_ptr<Resolution> resolution_;
    std::vector<Address> addresses_;
    std::size_t next_ = 0;
    std::size_t refusals_ = 0;
    FileDescriptor socket_;
    int watched_fd_ = -1;
    EventLoop::TimerId timer_ = 0;
    EventLoop::TimerId step_ = 0;
    std::uint64_t deadline_ms_ = 0;
    std::string why_;
};

}  // namespace

void connect(EventLoop& loop, const std::string& host, std::uint16_t port, std::uint64_t timeout_ms,
             const ConnectionLimits& limits, std::unique_ptr<ConnectionHandler> handler,
             std::function<void(std::shared_ptr<Connection>, std::string)> connected) {
    connect(loop, host, port, timeout_ms, limits, std::move(handler),
            [connected = std::move(connected)](std::shared_ptr<Connection> connection, std::string why,
                                               bool) { connected(std::move(connection), std::move(why)); });
}

void connect(EventLoop& loop, const std::string& host, std::uint16_t port, std::uint64_t timeout_ms,
             const ConnectionLimits& limits, std::unique_ptr<ConnectionHandler> handler,
             std::function<void(std::shared_ptr<Connection>, std::string, bool)> connected) {
    auto dialer = std::make_shared<Dialer>(loop, Endpoint{host, port}, limits, std::move(handler),
                                           std::move(connected));
    if (!loop.try_post([dialer, timeout_ms] { dialer->start(timeout_ms); })) {
        dialer->refuse("the event loop has stopped");
    }
}

}  // namespace mooncake::net
