// _core.TransferEngine: reads and writes of other engines' registered memory. The GIL is released round every
// call that waits or takes a lock; statuses are those of the frames, and `why` of the thread's latest call is
// kept for its caller's log.
#include "transfer/engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings/bindings.h"
#include "bindings/buffer.h"
#include "bindings/client_calls.h"
#include "bindings/gil.h"
#include "bindings/os_error.h"
#include "bindings/signal_watch.h"

namespace mooncake::bindings {

using transfer::CallResult;
using transfer::Direction;
using transfer::Engine;
using transfer::EngineOptions;
using transfer::Item;
using transfer::Outcome;

namespace {

using PeerName = std::pair<std::string, std::uint16_t>;

net::Endpoint endpoint_of(const PeerName& peer) { return {peer.first, peer.second}; }

// Whatever counts as a whole number in Python.
std::uint64_t whole(nb::handle number, const char* what) {
    const auto index = nb::steal(PyNumber_Index(number.ptr()));
    if (!index.is_valid()) throw nb::python_error();
    const auto value = PyLong_AsUnsignedLongLong(index.ptr());
    if (PyErr_Occurred() == nullptr) return value;
    PyErr_Clear();
    throw nb::type_error((std::string(what) + " must be whole numbers from 0 to 2^64-1").c_str());
}

std::vector<Item> items_of(nb::handle locals, nb::handle remotes, nb::handle lengths) {
    const FastSequence local(locals, "buffers");
    const FastSequence remote(remotes, "peer_buffer_addresses");
    const FastSequence length(lengths, "lengths");
    if (local.size() != remote.size() || local.size() != length.size()) {
        throw nb::value_error((std::to_string(local.size()) + " buffers, " + std::to_string(remote.size()) +
                               " peer_buffer_addresses and " + std::to_string(length.size()) + " lengths")
                                  .c_str());
    }
    std::vector<Item> items(local.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        items[i].local = whole(local[i], "buffers");
        items[i].remote = whole(remote[i], "peer_buffer_addresses");
        items[i].length = whole(length[i], "lengths");
    }
    return items;
}

// Runs a call that may wait; Ctrl-C ends it, and is raised.
template <class Run>
auto interruptible(Run run) {
    SignalWatch watch;
    auto result = [&] {
        const GilReleased released;
        return run([&watch] { return watch(); });
    }();
    if (watch.has_arrived()) throw nb::python_error();
    return result;
}

int told(const CallResult& result) {
    last_why() = result.why;
    return static_cast<int>(result.status);
}

int transfer_all(Engine& self, const PeerName& peer, bool write, nb::handle locals, nb::handle remotes,
                 nb::handle lengths, const std::optional<std::pair<std::string, std::string>>& notice) {
    const auto items = items_of(locals, remotes, lengths);
    std::optional<transfer::ReceivedNotice> told_after;
    if (notice) told_after = transfer::ReceivedNotice{notice->first, notice->second};
    const auto direction = write ? Direction::kWrite : Direction::kRead;
    return told(interruptible([&](const transfer::GivenUp& given_up) {
        return self.transfer(endpoint_of(peer), direction, items, told_after, given_up);
    }));
}

std::uint64_t submit(Engine& self, const PeerName& peer, bool write, nb::handle locals, nb::handle remotes,
                     nb::handle lengths) {
    auto items = items_of(locals, remotes, lengths);
    const auto direction = write ? Direction::kWrite : Direction::kRead;
    CallResult result;
    const auto id = interruptible([&](const transfer::GivenUp& given_up) {
        return self.submit(endpoint_of(peer), direction, std::move(items), given_up, result);
    });
    told(result);
    return id;
}

// 1 done, 0 pending, -1 failed or not known, -2 not within its time.
int outcome(Engine& self, std::uint64_t batch) {
    std::string why;
    const Outcome found = self.outcome(batch, why);
    last_why() = found == Outcome::kUnknown ? "no batch " + std::to_string(batch) + " is known" : why;
    switch (found) {
        case Outcome::kDone:
            return 1;
        case Outcome::kPending:
            return 0;
        case Outcome::kLate:
            return -2;
        default:
            return -1;
    }
}

std::pair<int, std::uint64_t> first_buffer(Engine& self, const PeerName& peer) {
    wire::MemoryRange range;
    const int status = told(interruptible([&](const transfer::GivenUp& given_up) {
        return self.first_buffer(endpoint_of(peer), given_up, range);
    }));
    return {status, range.length > 0 ? range.address : 0};
}

nb::list take_notices(Engine& self) {
    nb::list notices;
    for (const auto& notice : self.take_notices()) {
        notices.append(nb::make_tuple(nb::bytes(notice.name.data(), notice.name.size()),
                                      nb::bytes(notice.message.data(), notice.message.size())));
    }
    return notices;
}

template <class Run>
int registry_call(Run run) {
    std::string why;
    wire::Status status;
    {
        const GilReleased released;
        status = run(why);
    }
    last_why() = why;
    return static_cast<int>(status);
}

void check_mapped(std::uint64_t address, std::uint64_t length) {
    if (transfer::is_mapped({address, length})) return;
    throw nb::value_error(("no memory of this process: " + std::to_string(length) + " bytes at address " +
                           std::to_string(address))
                              .c_str());
}

void copy_to(std::uint64_t address, nb::handle data, std::uint64_t length) {
    const BorrowedBuffer buffer(data, BorrowedBuffer::Access::kRead);
    if (length > buffer.size()) {
        throw nb::value_error(
            (std::to_string(length) + " bytes of " + std::to_string(buffer.size())).c_str());
    }
    check_mapped(address, length);
    const GilReleased released;
    std::memcpy(reinterpret_cast<void*>(address), buffer.data(), length);
}

nb::bytes copy_from(std::uint64_t address, std::uint64_t length) {
    check_mapped(address, length);
    return nb::bytes(reinterpret_cast<const void*>(address), length);
}

void make(Engine* self, std::string host, std::uint16_t port, std::size_t threads, std::size_t batch_threads,
          std::uint64_t connect_timeout_ms, std::uint64_t transfer_timeout_ms,
          std::uint64_t stall_timeout_ms) {
    EngineOptions options;
    options.host = std::move(host);
    options.port = port;
    options.software = "mooncake-store " MOONCAKE_VERSION;
    options.threads = threads;
    options.batch_threads = batch_threads;
    options.connect_timeout_ms = connect_timeout_ms;
    options.transfer_timeout_ms = transfer_timeout_ms;
    options.stall_timeout_ms = stall_timeout_ms;
    try {
        const GilReleased released;
        new (self) Engine(std::move(options));
    } catch (const std::system_error& error) {
        raise_os_error(error);
    }
}

}  // namespace

void bind_transfer_engine(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<Engine>(module, "TransferEngine",
                       "Registered memory that other engines read and write, and reads and writes of theirs.")
        .def("__init__", &make, "host"_a, "port"_a = 0, nb::kw_only(), "threads"_a = 2, "batch_threads"_a = 4,
             "connect_timeout_ms"_a = 1'000, "transfer_timeout_ms"_a = 30'000, "stall_timeout_ms"_a = 10'000)
        .def_prop_ro("port", &Engine::port)
        .def_prop_ro("is_stopped", &Engine::is_stopped)
        .def("stop", &Engine::stop, nb::call_guard<GilReleased>())
        .def(
            "register",
            [](Engine& self, std::uint64_t address, std::uint64_t length) {
                return registry_call([&](std::string& why) { return self.add({address, length}, why); });
            },
            "address"_a, "length"_a)
        .def(
            "unregister",
            [](Engine& self, std::uint64_t address) {
                return registry_call([&](std::string& why) { return self.withdraw(address, why); });
            },
            "address"_a)
        .def(
            "lend",
            [](Engine& self, std::uint64_t length) {
                std::uint64_t address = 0;
                registry_call([&](std::string& why) {
                    address = self.lend(length, why);
                    return wire::Status::kOk;
                });
                return address;
            },
            "length"_a)
        .def(
            "give_back",
            [](Engine& self, std::uint64_t address) {
                return registry_call([&](std::string& why) { return self.give_back(address, why); });
            },
            "address"_a)
        .def("transfer", &transfer_all, "peer"_a, "write"_a, "buffers"_a, "peer_buffer_addresses"_a,
             "lengths"_a, "notice"_a = nb::none())
        .def("submit", &submit, "peer"_a, "write"_a, "buffers"_a, "peer_buffer_addresses"_a, "lengths"_a)
        .def("outcome", &outcome, "batch"_a)
        .def(
            "wait",
            [](Engine& self, const std::vector<std::uint64_t>& batches) {
                interruptible([&](const transfer::GivenUp& given_up) {
                    self.wait(batches, given_up);
                    return 0;
                });
            },
            "batches"_a)
        .def("first_buffer", &first_buffer, "peer"_a)
        .def(
            "ping",
            [](Engine& self, const PeerName& peer) {
                return told(interruptible([&](const transfer::GivenUp& given_up) {
                    return self.ping(endpoint_of(peer), given_up);
                }));
            },
            "peer"_a)
        .def("take_notices", &take_notices)
        .def("stats",
             [](const Engine& self) {
                 nb::dict counts;
                 for (const auto& [name, value] : self.stats()) counts[name.c_str()] = value;
                 return counts;
             })
        .def_static("why", [] { return last_why(); });
    module.def("copy_to_address", &copy_to, "address"_a, "data"_a, "length"_a);
    module.def("copy_from_address", &copy_from, "address"_a, "length"_a);
}

}  // namespace mooncake::bindings
