// The functions of libc that wait, tell the time, draw at random or talk to others, for as long as a world
// runs: defined in the executable, they come before the C library's own, for the product's code and for the
// C++ library's threads and condition variables alike. Outside of a world they are what they always were.
//
// One thread of the real machine runs everything, so mutexes need nothing: whoever waits holds none that
// another needs, or the simulation hangs, which is what the real thing would do now and then.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cassert>
#include <cstring>
#include <functional>
#include <span>

#include "kernel.h"
#include "world.h"

using simulation::Kernel;
using simulation::kFirstFd;
using simulation::kNever;
using simulation::Ms;
using simulation::World;

namespace {

// So that no clock reads as zero.
constexpr Ms kStartMs = 1'000'000;

bool is_simulated() { return World::current() != nullptr && World::current()->running() != nullptr; }
bool is_ours(int fd) { return fd >= kFirstFd && Kernel::current() != nullptr; }

timespec as_timespec(Ms ms) {
    return {static_cast<time_t>(ms / 1'000), static_cast<long>(ms % 1'000) * 1'000'000};
}
// Rounded up: a deadline amid a millisecond has not come when it begins.
Ms as_world_ms(const timespec& time) {
    const auto ms =
        static_cast<Ms>(time.tv_sec) * 1'000 + (static_cast<Ms>(time.tv_nsec) + 999'999) / 1'000'000;
    return ms > kStartMs ? ms - kStartMs : 0;
}

int wait_on_condition(pthread_cond_t* condition, pthread_mutex_t* mutex, Ms until_ms) {
    World& world = *World::current();
    pthread_mutex_unlock(mutex);
    world.condition(condition).add(world.running());
    const bool was_woken = world.wait(until_ms);
    pthread_mutex_lock(mutex);
    return was_woken ? 0 : ETIMEDOUT;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// ---- time and chance

int clock_gettime(clockid_t clock, timespec* into) noexcept {
    if (World::current() == nullptr) return static_cast<int>(::syscall(SYS_clock_gettime, clock, into));
    *into = as_timespec(kStartMs + World::current()->now_ms());
    return 0;
}

int nanosleep(const timespec* length, timespec* left) {
    if (!is_simulated()) return static_cast<int>(::syscall(SYS_nanosleep, length, left));
    World::current()->sleep(static_cast<Ms>(length->tv_sec) * 1'000 +
                            static_cast<Ms>(length->tv_nsec) / 1'000'000);
    return 0;
}

ssize_t getrandom(void* into, size_t count, unsigned flags) {
    if (World::current() == nullptr) return ::syscall(SYS_getrandom, into, count, flags);
    auto* bytes = static_cast<std::uint8_t*>(into);
    for (size_t i = 0; i < count; ++i)
        bytes[i] = static_cast<std::uint8_t>(World::current()->random().next());
    return static_cast<ssize_t>(count);
}

// ---- threads

int pthread_create(pthread_t* made, const pthread_attr_t*, void* (*body)(void*), void* argument) {
    assert(is_simulated());
    World& world = *World::current();
    *made = world.spawn(world.here(), "thread", [body, argument] { body(argument); })->id;
    return 0;
}
int pthread_join(pthread_t thread, void**) {
    World& world = *World::current();
    world.join(world.find(thread));
    return 0;
}
int pthread_detach(pthread_t thread) noexcept {
    World& world = *World::current();
    world.release(world.find(thread));
    return 0;
}
pthread_t pthread_self() noexcept { return is_simulated() ? World::current()->running()->id : 1; }
int pthread_setname_np(pthread_t thread, const char* name) noexcept {
    if (!is_simulated()) return 0;
    if (auto* fiber = World::current()->find(thread)) fiber->name = name;
    return 0;
}
int pthread_sigmask(int, const sigset_t*, sigset_t*) noexcept { return 0; }

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
    return wait_on_condition(condition, mutex, kNever);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t,
                           const timespec* until) {
    return wait_on_condition(condition, mutex, as_world_ms(*until));
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
    return wait_on_condition(condition, mutex, as_world_ms(*until));
}
int pthread_cond_signal(pthread_cond_t* condition) noexcept {
    if (World::current() != nullptr) World::current()->condition(condition).wake_one();
    return 0;
}
int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
    if (World::current() != nullptr) World::current()->condition(condition).wake_all();
    return 0;
}
int pthread_cond_destroy(pthread_cond_t* condition) noexcept {
    if (World::current() != nullptr) World::current()->forget_condition(condition);
    return 0;
}

// ---- descriptors

int socket(int domain, int type, int protocol) noexcept {
    if (!is_simulated()) return static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
    return Kernel::current()->socket(type);
}
int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_bind, fd, address, length));
    return Kernel::current()->bind(fd, address);
}
int listen(int fd, int backlog) noexcept {
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_listen, fd, backlog));
    return Kernel::current()->listen(fd);
}
int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_accept4, fd, address, length, flags));
    return Kernel::current()->accept(fd);
}
int connect(int fd, const sockaddr* address, socklen_t length) {
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_connect, fd, address, length));
    return Kernel::current()->connect(fd, address);
}
int getsockname(int fd, sockaddr* address, socklen_t* length) noexcept {
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_getsockname, fd, address, length));
    return Kernel::current()->name(fd, address, length, true);
}
int getpeername(int fd, sockaddr* address, socklen_t* length) noexcept {
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_getpeername, fd, address, length));
    return Kernel::current()->name(fd, address, length, false);
}
int getsockopt(int fd, int level, int option, void* value, socklen_t* length) noexcept {
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_getsockopt, fd, level, option, value, length));
    return Kernel::current()->get_option(fd, level, option, value);
}
int setsockopt(int fd, int level, int option, const void* value, socklen_t length) noexcept {
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_setsockopt, fd, level, option, value, length));
    return Kernel::current()->set_option(fd, level, option, value);
}
int fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    const long argument = va_arg(arguments, long);
    va_end(arguments);
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
    return command == F_SETFL ? Kernel::current()->set_flags(fd, static_cast<int>(argument)) : 0;
}
ssize_t send(int fd, const void* bytes, size_t count, int flags) {
    if (!is_ours(fd)) return ::syscall(SYS_sendto, fd, bytes, count, flags, nullptr, 0);
    const iovec piece{const_cast<void*>(bytes), count};
    return Kernel::current()->send(fd, std::span(&piece, 1), flags);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    if (!is_ours(fd)) return ::syscall(SYS_sendmsg, fd, message, flags);
    return Kernel::current()->send(fd, std::span<const iovec>(message->msg_iov, message->msg_iovlen), flags);
}
ssize_t recv(int fd, void* bytes, size_t count, int flags) {
    if (!is_ours(fd)) return ::syscall(SYS_recvfrom, fd, bytes, count, flags, nullptr, nullptr);
    const iovec piece{bytes, count};
    return Kernel::current()->receive(fd, std::span(&piece, 1), flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
    if (!is_ours(fd)) return ::syscall(SYS_recvmsg, fd, message, flags);
    return Kernel::current()->receive(fd, std::span<const iovec>(message->msg_iov, message->msg_iovlen),
                                      flags);
}
int shutdown(int fd, int how) noexcept {
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_shutdown, fd, how));
    return Kernel::current()->shutdown(fd, how);
}
int close(int fd) {
    if (!is_ours(fd)) return static_cast<int>(::syscall(SYS_close, fd));
    return Kernel::current()->close(fd);
}
int eventfd(unsigned count, int flags) noexcept {
    if (!is_simulated()) return static_cast<int>(::syscall(SYS_eventfd2, count, flags));
    return Kernel::current()->eventfd(count);
}
ssize_t read(int fd, void* into, size_t count) {
    if (!is_ours(fd)) return ::syscall(SYS_read, fd, into, count);
    return Kernel::current()->read_event(fd, into);
}
ssize_t write(int fd, const void* from, size_t count) {
    if (!is_ours(fd)) return ::syscall(SYS_write, fd, from, count);
    return Kernel::current()->write_event(fd, from);
}
int epoll_create1(int flags) noexcept {
    if (!is_simulated()) return static_cast<int>(::syscall(SYS_epoll_create1, flags));
    return Kernel::current()->epoll_create();
}
int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
    if (!is_ours(epoll)) return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, operation, fd, event));
    return Kernel::current()->epoll_control(epoll, operation, fd, event);
}
int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms) {
    if (!is_ours(epoll)) {
        return static_cast<int>(::syscall(SYS_epoll_pwait, epoll, events, count, timeout_ms, nullptr, 8));
    }
    return Kernel::current()->epoll_wait(epoll, std::span(events, static_cast<std::size_t>(count)),
                                         timeout_ms);
}
int poll(pollfd* entries, nfds_t count, int timeout_ms) {
    if (!is_simulated()) {
        const timespec limit = as_timespec(static_cast<Ms>(timeout_ms < 0 ? 0 : timeout_ms));
        return static_cast<int>(
            ::syscall(SYS_ppoll, entries, count, timeout_ms < 0 ? nullptr : &limit, nullptr, 8));
    }
    return Kernel::current()->poll(std::span(entries, count), timeout_ms);
}

}  // extern "C"
#pragma GCC visibility pop
