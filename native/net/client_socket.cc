#include "net/client_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "net/address.h"
#include "net/dial.h"
#include "net/event_loop.h"
#include "net/iovecs.h"
#include "net/local_socket.h"
#include "net/receive_buffer.h"

namespace mooncake::net {

namespace {

// A refusal's text may be as long as the largest hello, after its length.
constexpr std::size_t kFirstBodyMax = wire::kHelloBytesMax + 64;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// A blocking receive that a signal ended is not repeated: its caller looks up first.
bool must_repeat(int error, int flags) { return error == EINTR && (flags & MSG_DONTWAIT) != 0; }

}  // namespace

struct ClientSocket::State {
    FileDescriptor fd;
    std::string address;
    const pid_t process_id = ::getpid();  // in a child of it the connection is the parent's
    ReceiveBuffer buffer;
    std::size_t body_max = kFirstBodyMax;
    wire::Uuid process{};
    std::uint64_t last_request = 0;
    std::string error;
    bool blocking = false;
    std::shared_ptr<const SharedMemory> memory;
    std::shared_ptr<ViewLink> link;
    std::vector<FileDescriptor>* descriptors = nullptr;  // where those go that come with bytes

    IoResult fail(IoResult result, const std::string& what) {
        error = address + ": " + what;
        return result;
    }
    // What a failed or empty send or receive means.
    IoResult io_error() {
        if (would_block(errno) || errno == EINTR) return IoResult::kWouldBlock;
        return fail(IoResult::kClosed, errno_text(errno));
    }

    // While the deadline is farther off than kLookUpMs, a receive blocks in the kernel for at most so long:
    // one system call where poll and recv are two, and 1-2 microseconds less a round trip. Non-blocking calls
    // say so themselves (MSG_DONTWAIT).
    void make_blocking() {
        const timeval limit{0, static_cast<suseconds_t>(kLookUpMs * 1000)};
        blocking = setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
                   fcntl(fd.get(), F_SETFL, 0) == 0;
    }

    // With MSG_DONTWAIT: as far as it goes now. Without: one system call that may wait, so that a peer who
    // sends byte by byte cannot hold the caller beyond its deadline.
    IoResult receive_frame(wire::FrameHeader& header, wire::Bytes& body, int flags);
    IoResult receive_into(std::span<iovec>& targets, int flags, const Received& received = {});

    // Calls `receive` with the flags that suit the deadline until it answers anything but kWouldBlock.
    template <class Receive>
    IoResult wait_to_receive(const Patience& patience, Receive receive) {
        while (blocking && monotonic_ms() + kLookUpMs < patience.deadline_ms) {
            const IoResult result = receive(0);
            if (result != IoResult::kWouldBlock) return result;
            if (patience.is_given_up()) return fail(IoResult::kDeadline, "given up");
        }
        return until(patience, POLLIN, [&] { return receive(MSG_DONTWAIT); });
    }

    // Calls `attempt` until it answers anything but kWouldBlock, waiting for `events` between.
    template <class Attempt>
    IoResult until(const Patience& patience, short events, Attempt attempt) {
        while (true) {
            const IoResult result = attempt();
            if (result != IoResult::kWouldBlock) return result;
            if (!wait_for(fd.get(), events, patience)) {
                return fail(IoResult::kDeadline, events == POLLIN ? "no answer within the deadline"
                                                                  : "not sent within the deadline");
            }
        }
    }
};

ClientSocket::ClientSocket(std::unique_ptr<State> state) : state_(std::move(state)) {}
ClientSocket::~ClientSocket() {
    if (state_->link) state_->link->leave();
    // A child that was forked meanwhile holds the socket open too; the peer shall see the end all the same.
    if (state_->fd && !state_->link && state_->process_id == ::getpid()) shutdown();
}

std::unique_ptr<ClientSocket> ClientSocket::connect(const Endpoint& endpoint, const wire::Hello& hello,
                                                    const Patience& patience, std::string& why,
                                                    wire::Status& status) {
    ClientDial dial(endpoint, hello, patience.deadline_ms);
    return connect(dial, patience, why, status);
}

std::unique_ptr<ClientSocket> ClientSocket::connect(ClientDial& dial, const Patience& patience,
                                                    std::string& why, wire::Status& status) {
    while (true) {
        const IoResult result = dial.advance();
        why = dial.why();
        status = dial.status();
        if (result == IoResult::kDone) return dial.take();
        if (result != IoResult::kWouldBlock) return nullptr;
        wait_for(dial.fd(), dial.events(), {dial.due_ms(), patience.given_up});
        if (!patience.is_given_up()) continue;
        why = to_text(dial.endpoint()) + ": given up";
        status = wire::Status::kDeadline;
        return nullptr;
    }
}

IoResult ClientSocket::send_all(std::span<iovec> pieces, const Patience& patience) {
    return state_->until(patience, POLLOUT, [&] { return try_send(pieces); });
}

IoResult ClientSocket::receive_frame(wire::FrameHeader& header, wire::Bytes& body, const Patience& patience) {
    return state_->wait_to_receive(patience,
                                   [&](int flags) { return state_->receive_frame(header, body, flags); });
}

IoResult ClientSocket::receive_into(std::span<iovec> targets, const Patience& patience) {
    return state_->wait_to_receive(patience, [&](int flags) { return state_->receive_into(targets, flags); });
}

IoResult ClientSocket::try_send(std::span<iovec>& pieces) {
    skip_bytes(pieces, 0);
    while (!pieces.empty()) {
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = std::min(pieces.size(), kIovecsACall);
        const int more = pieces.size() > kIovecsACall ? MSG_MORE : 0;
        const ssize_t n = ::sendmsg(state_->fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT | more);
        if (n >= 0) {
            skip_bytes(pieces, static_cast<std::size_t>(n));
        } else if (errno != EINTR) {
            return state_->io_error();
        }
    }
    return IoResult::kDone;
}

IoResult ClientSocket::State::receive_frame(wire::FrameHeader& header, wire::Bytes& body, int flags) {
    for (bool waited = false;;) {
        const wire::Bytes unread = buffer.unread();
        std::size_t wanted = wire::kFrameHeaderBytes;
        if (unread.size() >= wanted) {
            const auto parsed = wire::parse_frame_header(unread.first(wire::kFrameHeaderBytes), body_max);
            if (!parsed) return fail(IoResult::kMalformed, "sent bytes that are not a frame");
            wanted += parsed->body_bytes;
            if (unread.size() >= wanted) {
                header = *parsed;
                body = unread.subspan(wire::kFrameHeaderBytes, parsed->body_bytes);
                buffer.consume(wanted);
                return IoResult::kDone;
            }
        }
        if (waited) return IoResult::kWouldBlock;
        buffer.release_large();
        const std::span<std::uint8_t> room = buffer.room(wanted);
        const ssize_t n = descriptors == nullptr
                              ? ::recv(fd.get(), room.data(), room.size(), flags)
                              : receive_with_descriptors(fd.get(), room, *descriptors, flags);
        if (n > 0) {
            buffer.add(static_cast<std::size_t>(n));
            waited = flags == 0;
        } else if (n == 0) {
            return fail(IoResult::kClosed, "closed the connection");
        } else if (!must_repeat(errno, flags)) {
            return io_error();
        }
    }
}

IoResult ClientSocket::State::receive_into(std::span<iovec>& targets, int flags, const Received& received) {
    const std::size_t drained = buffer.drain_into(targets);
    if (received && drained > 0) received(drained);
    const std::size_t bytes_max = received ? kHotBytes : ~std::size_t{0};
    while (!targets.empty()) {
        std::size_t asked = 0;
        const ssize_t n = receive_some(fd.get(), targets, asked, flags, bytes_max);
        if (n > 0) {
            const auto count = static_cast<std::size_t>(n);
            skip_bytes(targets, count);
            if (received) received(count);
            // Less than was asked for was all there is: the next call would find nothing.
            if ((flags == 0 || count < asked) && !targets.empty()) return IoResult::kWouldBlock;
        } else if (n == 0) {
            return fail(IoResult::kClosed, "closed the connection amid a payload");
        } else if (!must_repeat(errno, flags)) {
            return io_error();
        }
    }
    return IoResult::kDone;
}

IoResult ClientSocket::try_receive_frame(wire::FrameHeader& header, wire::Bytes& body) {
    return state_->receive_frame(header, body, MSG_DONTWAIT);
}

IoResult ClientSocket::try_receive_into(std::span<iovec>& targets, const Received& received) {
    return state_->receive_into(targets, MSG_DONTWAIT, received);
}

int ClientSocket::fd() const { return state_->fd.get(); }
const wire::Uuid& ClientSocket::peer_process() const { return state_->process; }
const std::shared_ptr<const SharedMemory>& ClientSocket::memory() const { return state_->memory; }
ViewLink* ClientSocket::link() { return state_->link.get(); }

const std::shared_ptr<ViewLink>& ClientSocket::share_link() {
    if (!state_->link) {
        FileDescriptor another(::fcntl(state_->fd.get(), F_DUPFD_CLOEXEC, 0));
        if (another) state_->link = std::make_shared<ViewLink>(std::move(another), state_->memory);
    }
    return state_->link;
}

std::uint64_t ClientSocket::next_request_id() { return ++state_->last_request; }
const std::string& ClientSocket::error() const { return state_->error; }

bool ClientSocket::has_unread() const { return !state_->buffer.empty(); }
bool ClientSocket::is_reusable() const { return !has_unread() && !(state_->link && state_->link->is_over()); }

bool ClientSocket::is_idle_healthy() {
    if (!is_reusable()) return false;
    state_->buffer.release_large();
    std::uint8_t byte;
    return ::recv(state_->fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && would_block(errno);
}

// ---- dialling

ClientDial::ClientDial(const Endpoint& endpoint, const wire::Hello& hello, std::uint64_t deadline_ms)
    : endpoint_(endpoint), deadline_ms_(deadline_ms), dialling_(std::in_place, endpoint, deadline_ms) {
    pack(hello);
}

ClientDial::ClientDial(const Endpoint& endpoint, Dialled opened, const wire::Hello& hello,
                       std::uint64_t deadline_ms)
    : endpoint_(endpoint), deadline_ms_(deadline_ms), opened_(std::move(opened)) {
    pack(hello);
}

void ClientDial::pack(const wire::Hello& hello) {
    wire::FrameHeader request;
    request.verb = wire::Verb::kHello;
    request.request_id = 1;
    const std::size_t start = wire::begin_frame(hello_, request);
    wire::Writer writer(hello_);
    wire::encode(hello, writer);
    wire::finish_frame(hello_, start);
    piece_ = {hello_.data(), hello_.size()};
    unsent_ = {&piece_, 1};
}

ClientDial::~ClientDial() = default;

// The question about the memory leaves together with hello.
void ClientDial::share_memory(std::shared_ptr<const SharedMemory> known) {
    is_local_ = true;
    memory_ = std::move(known);
    if (memory_) return;
    wire::FrameHeader request;
    request.verb = wire::Verb::kMap;
    request.request_id = 2;
    wire::finish_frame(hello_, wire::begin_frame(hello_, request));
    piece_ = {hello_.data(), hello_.size()};
}

int ClientDial::fd() const {
    if (socket_) return socket_->fd();
    return dialling_ ? dialling_->fd() : opened_.fd.get();
}
short ClientDial::events() const {
    if (!socket_) return dialling_ ? dialling_->events() : short{POLLOUT};
    return unsent_.empty() ? POLLIN : POLLOUT;
}
std::uint64_t ClientDial::due_ms() const {
    return socket_ || !dialling_ ? deadline_ms_ : dialling_->due_ms();
}

IoResult ClientDial::fail(IoResult result, wire::Status status, const std::string& why) {
    why_ = why;
    status_ = status;
    return result;
}

IoResult ClientDial::advance() {
    if (!socket_) {
        if (dialling_ && !dialling_->advance()) return IoResult::kWouldBlock;
        Dialled dialled = dialling_ ? dialling_->take() : std::move(opened_);
        if (!dialled.fd) {
            const auto status = dialled.timed_out ? wire::Status::kDeadline : wire::Status::kRpcFail;
            return fail(dialled.timed_out ? IoResult::kDeadline : IoResult::kClosed, status, dialled.why);
        }
        auto state = std::make_unique<ClientSocket::State>();
        state->fd = std::move(dialled.fd);
        state->address = to_text(endpoint_);
        state->make_blocking();
        state->last_request = 2;
        if (is_local_ && !memory_) state->descriptors = &descriptors_;
        socket_.reset(new ClientSocket(std::move(state)));
    }
    return exchange_hello();
}

IoResult ClientDial::exchange_hello() {
    IoResult result = socket_->try_send(unsent_);
    while (result == IoResult::kDone) {
        wire::FrameHeader answer;
        wire::Bytes body;
        result = socket_->try_receive_frame(answer, body);
        if (result != IoResult::kDone) break;
        result = is_welcome_ ? take_memory(answer, body) : take_welcome(answer, body);
        if (result != IoResult::kDone) return result;
        if (is_local_ && !memory_) continue;
        socket_->state_->descriptors = nullptr;
        socket_->state_->memory = memory_;
        return result;
    }
    if (result == IoResult::kWouldBlock) {
        if (monotonic_ms() < deadline_ms_) return result;
        return fail(IoResult::kDeadline, wire::Status::kDeadline,
                    to_text(endpoint_) + ": no answer within the deadline");
    }
    const bool is_malformed = result == IoResult::kMalformed;
    return fail(result, is_malformed ? wire::Status::kMalformed : wire::Status::kClosed, socket_->error());
}

IoResult ClientDial::take_welcome(const wire::FrameHeader& answer, wire::Bytes body) {
    if (!wire::ok(answer.status)) {
        wire::Reader reader(body);
        return fail(IoResult::kClosed, answer.status,
                    to_text(endpoint_) + " refused: " + std::string(reader.text16(kFirstBodyMax)));
    }
    const auto welcome = wire::parse_welcome(body);
    if (!welcome || !answer.is_reply() || answer.verb != wire::Verb::kHello) {
        return fail(IoResult::kMalformed, wire::Status::kMalformed,
                    to_text(endpoint_) + " did not answer hello with a welcome: it speaks another protocol");
    }
    socket_->state_->process = welcome->process;
    socket_->state_->body_max = wire::kBodyBytesMax;
    is_welcome_ = true;
    return IoResult::kDone;
}

IoResult ClientDial::take_memory(const wire::FrameHeader& answer, wire::Bytes body) {
    const auto reply = wire::parse_map_reply(body);
    if (!answer.is_reply() || answer.verb != wire::Verb::kMap || !wire::ok(answer.status) || !reply) {
        return fail(IoResult::kMalformed, wire::Status::kMalformed,
                    to_text(endpoint_) + " did not answer map with its memory");
    }
    std::string why;
    memory_ = SharedMemory::map(*reply, descriptors_, why);
    descriptors_.clear();
    if (memory_) return IoResult::kDone;
    return fail(IoResult::kClosed, wire::Status::kNotSupported, to_text(endpoint_) + ": " + why);
}

void ClientSocket::shutdown() { ::shutdown(state_->fd.get(), SHUT_RDWR); }

}  // namespace mooncake::net
