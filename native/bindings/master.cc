// _core.Master: a native master for the gRPC door, for Store.embedded() and for tests. Owns how its answers
// get back to Python: inline, to a blocked caller, or on one thread that may wait for the GIL, because the
// lane's threads must not.
#include "master/master.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <limits>
#include <system_error>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/os_error.h"
#include "bindings/wire_convert.h"

namespace mooncake::bindings {

namespace {

using master::Master;
using master::MasterOptions;
using wire::Status;
using wire::Verb;

// A blocked execute() looks for Ctrl-C this often; the promise is 100 ms.
constexpr std::chrono::milliseconds kSignalPeriod{50};

Verb to_verb(int number) {
    const auto verb = static_cast<Verb>(number);
    const bool is_ours = (number >= static_cast<int>(Verb::kOpenSession) && number <= 255 &&
                          verb <= Verb::kQueryTask && wire::verb_name(verb) != nullptr) ||
                         verb == Verb::kReport || verb == Verb::kInventory || verb == Verb::kTombstones ||
                         verb == Verb::kHoldings;
    if (!is_ours) {
        throw nb::value_error(("verb " + std::to_string(number) + " is not a request to a master").c_str());
    }
    return verb;
}

// Calls back with the GIL, on a thread of its own: whoever completes a call only queues it. Bounded by the
// calls that are parked (parked_calls_max). Starts with the first one.
class AnswerThread {
  public:
    ~AnswerThread() { stop(); }

    void push(std::function<void()> answer) {
        const std::lock_guard guard(state_->mutex);
        state_->answers.push_back(std::move(answer));
        if (!thread_.joinable() && !state_->is_stopped) thread_ = std::thread(&AnswerThread::run, state_);
        state_->ready.notify_one();
    }
    // Returns when all that was pushed before has been called. Without the GIL. A callback may hold the last
    // reference to its master: then this runs on the thread itself, which ends on its own.
    void stop() {
        {
            const std::lock_guard guard(state_->mutex);
            state_->is_stopped = true;
        }
        state_->ready.notify_all();
        if (thread_.get_id() == std::this_thread::get_id()) {
            thread_.detach();
            return;
        }
        const std::lock_guard joining(joining_);
        if (thread_.joinable()) thread_.join();
    }

  private:
    struct State {
        std::mutex mutex;
        std::condition_variable ready;
        std::deque<std::function<void()>> answers;
        bool is_stopped = false;
    };

    static void run(const std::shared_ptr<State>& state) {
        std::unique_lock guard(state->mutex);
        for (;;) {
            state->ready.wait(guard, [&] { return state->is_stopped || !state->answers.empty(); });
            if (state->answers.empty()) return;
            auto answers = std::exchange(state->answers, {});
            guard.unlock();
            if (nb::is_alive()) {
                const GilHeld gil;
                for (auto& answer : answers) answer();
                answers.clear();
            }
            guard.lock();
        }
    }

    const std::shared_ptr<State> state_ = std::make_shared<State>();
    std::mutex joining_;
    std::thread thread_;
};

// A Python object that any thread may let go of.
struct Callback {
    explicit Callback(nb::callable its_function) : function(std::move(its_function)) {}
    ~Callback() {
        if (!nb::is_alive()) {
            (void)function.release();  // the interpreter is gone, and its memory with it
            return;
        }
        const GilHeld gil;
        function.reset();
    }
    Callback(const Callback&) = delete;
    Callback& operator=(const Callback&) = delete;

    // With the GIL. What it raises is reported, and ends here.
    void call(Status status, const wire::Buffer& body) const {
        try {
            function(static_cast<int>(status), to_python(wire::Bytes(body)));
        } catch (nb::python_error& error) {
            error.discard_as_unraisable(function);
        }
    }

    nb::callable function;
};

// One submit(): how its completion finds out whether the submitting call is still on the stack.
struct Submission {
    std::thread::id submitter = std::this_thread::get_id();
    // Of the submitter's thread alone.
    bool is_submitting = true;
    bool is_answered = false;
    Status status = Status::kOk;
    wire::Buffer body;
};

// One execute(): the answer, and who waits for it.
struct Waiter {
    std::mutex mutex;
    std::condition_variable answered;
    bool is_answered = false;
    Status status = Status::kOk;
    wire::Buffer body;
};

struct Core {
    explicit Core(const MasterOptions& options) : master(options) {}
    void stop() {
        if (!is_ours()) return;
        master.stop();
        answers.stop();
    }
    // False in a forked child: it has the locks but none of the threads that would be joined.
    bool is_ours() const { return owner == ::getpid(); }

    const pid_t owner = ::getpid();
    Master master;
    AnswerThread answers;
};

std::shared_ptr<Core> make_core(const MasterOptions& options) {
    return {new Core(options), [](Core* core) {
                if (core->is_ours()) delete core;  // else it is left alone until the child ends
            }};
}

// Masters that the interpreter's end must stop while Python can still be called back.
class LiveMasters {
  public:
    static LiveMasters& get() {
        static auto* live = new LiveMasters;  // outlives every static destructor on purpose
        return *live;
    }
    void add(const std::shared_ptr<Core>& core) {
        const std::lock_guard guard(mutex_);
        std::erase_if(cores_, [](const auto& each) { return each.expired(); });
        cores_.push_back(core);
    }
    void stop_all() {
        std::vector<std::weak_ptr<Core>> cores;
        {
            const std::lock_guard guard(mutex_);
            cores.swap(cores_);
        }
        for (const auto& each : cores) {
            if (const auto core = each.lock()) core->stop();
        }
    }

  private:
    std::mutex mutex_;
    std::vector<std::weak_ptr<Core>> cores_;
};

// ---- options ----

struct Setting {
    const char* name;
    std::function<void(MasterOptions&, nb::handle)> set;
};

[[noreturn]] void refuse(const char* name, nb::handle value, const std::string& expected) {
    const std::string text = std::string(name) + " must be " + expected + ", not " + nb::repr(value).c_str();
    throw nb::value_error(text.c_str());
}

template <class T>
Setting integer(const char* name, T& (*field)(MasterOptions&), std::uint64_t min,
                std::uint64_t max = std::numeric_limits<T>::max()) {
    return {name, [=](MasterOptions& options, nb::handle value) {
                std::uint64_t read = 0;
                if (!nb::try_cast(value, read, false) || read < min || read > max) {
                    refuse(name, value,
                           "an integer of " + std::to_string(min) + " to " + std::to_string(max));
                }
                field(options) = static_cast<T>(read);
            }};
}

Setting ratio(const char* name, double& (*field)(MasterOptions&)) {
    return {name, [=](MasterOptions& options, nb::handle value) {
                double read = 0;
                if (!nb::try_cast(value, read) || !(read > 0 && read <= 1)) {
                    refuse(name, value, "a number above 0 and at most 1");
                }
                field(options) = read;
            }};
}

Setting string(const char* name, std::string& (*field)(MasterOptions&)) {
    return {name, [=](MasterOptions& options, nb::handle value) {
                if (!nb::try_cast(value, field(options))) refuse(name, value, "a str");
            }};
}

void set_eviction_policy(MasterOptions& options, nb::handle value) {
    const auto kind = metadata::eviction_policy_of(nb::cast<std::string>(value));
    if (!kind) refuse("eviction_policy", value, "'adaptive' or 'lru'");
    options.metadata.eviction_policy = *kind;
}

void set_allocation(MasterOptions& options, nb::handle value) {
    using metadata::AllocationStrategy;
    const std::string name = nb::isinstance<nb::str>(value) ? nb::cast<std::string>(value) : "";
    if (name == "random") {
        options.metadata.allocation = AllocationStrategy::kRandom;
    } else if (name == "free_ratio_first") {
        options.metadata.allocation = AllocationStrategy::kFreeRatioFirst;
    } else if (name == "local_first") {
        options.metadata.allocation = AllocationStrategy::kLocalFirst;
    } else {
        refuse("allocation", value, "'random', 'free_ratio_first' or 'local_first'");
    }
}

void set_uuid(MasterOptions& options, nb::handle value) {
    if (!nb::isinstance<nb::bytes>(value)) refuse("uuid", value, "16 bytes");
    options.uuid = to_uuid(nb::borrow<nb::bytes>(value));
}

void set_keeps_tombstones(MasterOptions& options, nb::handle value) {
    if (!nb::isinstance<nb::bool_>(value)) refuse("keeps_tombstones", value, "a bool");
    options.driver.keeps_tombstones = nb::cast<bool>(value);
}

void set_dial_back(MasterOptions& options, nb::handle value) {
    if (!nb::isinstance<nb::bool_>(value)) refuse("dial_back", value, "a bool");
    options.dial_back = nb::cast<bool>(value);
}

void set_evict_soft_pinned(MasterOptions& options, nb::handle value) {
    if (!nb::isinstance<nb::bool_>(value)) refuse("evict_soft_pinned", value, "a bool");
    options.metadata.evict_soft_pinned = nb::cast<bool>(value);
}

const std::vector<Setting>& settings() {
    using O = MasterOptions;
    using U64 = std::uint64_t;
    using U32 = std::uint32_t;
    static const std::vector<Setting> all = {
        integer<U64>(
            "client_ttl_ms", [](O& o) -> U64& { return o.metadata.client_ttl_ms; }, 1),
        integer<U64>(
            "session_grace_ms", [](O& o) -> U64& { return o.metadata.session_grace_ms; }, 0),
        integer<U32>(
            "heartbeat_interval_ms", [](O& o) -> U32& { return o.metadata.heartbeat_interval_ms; }, 1),
        integer<U64>(
            "lease_ttl_ms", [](O& o) -> U64& { return o.metadata.lease_ttl_ms; }, 0),
        integer<U64>(
            "exists_hold_ms", [](O& o) -> U64& { return o.metadata.exists_hold_ms; }, 0),
        integer<U64>(
            "put_start_discard_ms", [](O& o) -> U64& { return o.metadata.put_start_discard_ms; }, 0),
        integer<U64>(
            "put_start_release_ms", [](O& o) -> U64& { return o.metadata.put_start_release_ms; }, 0),
        integer<U64>(
            "soft_pin_ms", [](O& o) -> U64& { return o.metadata.soft_pin_ms; }, 0),
        integer<U64>(
            "soft_pin_max_ms", [](O& o) -> U64& { return o.metadata.soft_pin_max_ms; }, 0),
        {"evict_soft_pinned", set_evict_soft_pinned},
        {"keeps_tombstones", set_keeps_tombstones},
        {"dial_back", set_dial_back},
        ratio("eviction_high_watermark_ratio",
              [](O& o) -> double& { return o.metadata.eviction_high_watermark_ratio; }),
        ratio("eviction_ratio", [](O& o) -> double& { return o.metadata.eviction_ratio; }),
        {"allocation", set_allocation},
        {"eviction_policy", set_eviction_policy},
        ratio("repair_low_watermark_ratio",
              [](O& o) -> double& { return o.metadata.repair_low_watermark_ratio; }),
        integer<U64>(
            "repair_bytes_per_s", [](O& o) -> U64& { return o.metadata.repair_bytes_per_s; }, 0),
        integer<U32>(
            "copies_a_node_max", [](O& o) -> U32& { return o.metadata.copies_a_node_max; }, 1),
        integer<U64>(
            "copy_timeout_ms", [](O& o) -> U64& { return o.metadata.copy_timeout_ms; }, 1),
        integer<U32>(
            "tasks_pending_max", [](O& o) -> U32& { return o.metadata.tasks_pending_max; }, 0),
        integer<U32>(
            "tasks_finished_max", [](O& o) -> U32& { return o.metadata.tasks_finished_max; }, 0),
        integer<U64>(
            "task_pending_timeout_ms", [](O& o) -> U64& { return o.metadata.task_pending_timeout_ms; }, 0),
        integer<U64>(
            "task_processing_timeout_ms", [](O& o) -> U64& { return o.metadata.task_processing_timeout_ms; },
            0),
        integer<U32>(
            "task_attempts_max", [](O& o) -> U32& { return o.metadata.task_attempts_max; }, 1),
        integer<U64>(
            "max_keys", [](O& o) -> U64& { return o.metadata.max_keys; }, 1),
        integer<U64>(
            "max_metadata_bytes", [](O& o) -> U64& { return o.metadata.max_metadata_bytes; }, 1),
        integer<U64>(
            "journal_events", [](O& o) -> U64& { return o.metadata.journal_events; }, 0, 1u << 20),
        integer<U32>(
            "replay_window", [](O& o) -> U32& { return o.metadata.replay_window; }, 1),
        integer<U64>(
            "alloc_wait_ms", [](O& o) -> U64& { return o.driver.alloc_wait_ms; }, 0),
        integer<U64>(
            "remove_confirm_timeout_ms", [](O& o) -> U64& { return o.driver.remove_confirm_timeout_ms; }, 0),
        integer<std::size_t>(
            "parked_calls_max", [](O& o) -> std::size_t& { return o.driver.parked_calls_max; }, 0),
        string("lane_host", [](O& o) -> std::string& { return o.lane_host; }),
        integer<std::uint16_t>(
            "lane_port", [](O& o) -> std::uint16_t& { return o.lane_port; }, 0),
        integer<std::size_t>(
            "lane_threads", [](O& o) -> std::size_t& { return o.lane_threads; }, 0, 256),
        integer<U64>(
            "epoch", [](O& o) -> U64& { return o.epoch; }, 1, wire::kEpochMax),
        {"uuid", set_uuid},
        integer<U64>(
            "seed", [](O& o) -> U64& { return o.seed; }, 0),
        integer<U64>(
            "clock_step_max_ms", [](O& o) -> U64& { return o.clock_step_max_ms; }, 1),
        string("software", [](O& o) -> std::string& { return o.software; }),
    };
    return all;
}

MasterOptions to_options(const nb::kwargs& given) {
    MasterOptions options;
    options.software = MOONCAKE_VERSION;
    for (const auto& [key, value] : given) {
        const auto name = nb::cast<std::string>(key);
        const auto setting = std::find_if(settings().begin(), settings().end(),
                                          [&](const Setting& each) { return name == each.name; });
        if (setting == settings().end()) {
            throw nb::type_error(("Master has no setting '" + name + "'").c_str());
        }
        setting->set(options, value);
    }
    return options;
}

// ---- the class ----

class PyMaster {
    template <class Question>
    auto unlocked(Question question) const {
        const GilReleased release;
        return question(core_->master);
    }

  public:
    explicit PyMaster(const nb::kwargs& given) : core_(make_core(to_options(given))) {
        LiveMasters::get().add(core_);
    }
    ~PyMaster() {
        const GilReleased release;
        core_->stop();
        core_.reset();
    }
    PyMaster(const PyMaster&) = delete;
    PyMaster& operator=(const PyMaster&) = delete;

    void start() {
        try {
            const GilReleased release;
            core_->master.start();
        } catch (const std::system_error& error) {
            raise_os_error(error);
        }
    }

    void stop() {
        const GilReleased release;
        core_->stop();
    }

    void submit(int verb, const nb::bytes& body, nb::callable function) {
        const Verb checked = to_verb(verb);
        const auto callback = std::make_shared<Callback>(std::move(function));
        const auto submission = std::make_shared<Submission>();
        {
            const GilReleased release;
            auto done = [submission, callback, core = core_.get()](Status status,
                                                                   wire::Buffer answer) mutable {
                if (std::this_thread::get_id() == submission->submitter && submission->is_submitting) {
                    submission->is_answered = true;
                    submission->status = status;
                    submission->body = std::move(answer);
                    return;
                }
                // Moved along: the last to let go of the callback must not be a thread of the lane.
                core->answers.push([callback = std::move(callback), status, answer = std::move(answer)] {
                    callback->call(status, answer);
                });
            };
            core_->master.submit(checked, view(body), std::move(done));
            submission->is_submitting = false;
        }
        if (submission->is_answered) callback->call(submission->status, submission->body);
    }

    nb::tuple execute(int verb, const nb::bytes& body, std::uint64_t timeout_ms) {
        const Verb checked = to_verb(verb);
        const auto waiter = std::make_shared<Waiter>();
        {
            const GilReleased release;
            core_->master.submit(checked, view(body), [waiter](Status status, wire::Buffer answer) {
                const std::lock_guard guard(waiter->mutex);
                waiter->status = status;
                waiter->body = std::move(answer);
                waiter->is_answered = true;
                waiter->answered.notify_one();
            });
        }
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
        while (!wait_for_answer(*waiter, deadline)) {
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (std::chrono::steady_clock::now() < deadline) continue;
            wire::Buffer why;
            wire::Writer(why).text16("no answer within " + std::to_string(timeout_ms) + " ms");
            return nb::make_tuple(static_cast<int>(Status::kDeadline), to_python(wire::Bytes(why)));
        }
        return nb::make_tuple(static_cast<int>(waiter->status), to_python(wire::Bytes(waiter->body)));
    }

    int lane_port() const {
        return unlocked([](Master& master) { return int{master.lane_port()}; });
    }
    std::uint64_t epoch() const { return core_->master.epoch(); }
    nb::bytes uuid() const { return from_uuid(core_->master.uuid()); }

    nb::dict stats() const {
        const auto stats = unlocked([](Master& master) { return master.stats(); });
        nb::dict named;
        for (const auto& [name, value] : stats) named[name.c_str()] = value;
        return named;
    }

    // {verb: (count, refused, sum_us, (count a bucket, ...))}
    nb::dict request_histograms() const {
        nb::dict named;
        for (const auto& histogram : core_->master.request_histograms()) {
            nb::list buckets;
            for (const auto count : histogram.buckets) buckets.append(count);
            named[histogram.verb] =
                nb::make_tuple(histogram.count, histogram.refused, histogram.sum_us, nb::tuple(buckets));
        }
        return named;
    }

    std::uint64_t hear_of_reign(std::uint64_t epoch, const nb::bytes& other) const {
        if (epoch > wire::kEpochMax) {
            throw nb::value_error(("epoch " + std::to_string(epoch) + " is above " +
                                   std::to_string(wire::kEpochMax) + ", the last there is")
                                      .c_str());
        }
        const wire::Uuid uuid = to_uuid(other);
        return unlocked([&](Master& master) { return master.hear_of_reign(epoch, uuid); });
    }

    void serve_until(std::uint64_t boottime_ms) const { core_->master.serve_until(boottime_ms); }

    std::uint64_t tombstones_generation() const {
        return unlocked([](Master& master) { return master.tombstones_generation(); });
    }
    nb::bytes tombstones() const {
        const wire::Buffer kept = unlocked([](Master& master) { return master.tombstones(); });
        return to_python(wire::Bytes(kept));
    }
    void restore_tombstones(const nb::bytes& kept) const {
        const bool parses = unlocked([&](Master& master) { return master.restore_tombstones(view(kept)); });
        if (!parses) throw nb::value_error("these tombstones do not parse");
    }

    void tombstones_kept(std::uint64_t generation) const {
        unlocked([&](Master& master) { master.tombstones_kept(generation); });
    }

    void check_invariants() const {
        unlocked([](Master& master) { master.check_invariants(); });
    }

  private:
    // Without the GIL, for at most kSignalPeriod.
    static bool wait_for_answer(Waiter& waiter, std::chrono::steady_clock::time_point deadline) {
        const GilReleased release;
        const auto until = std::min(deadline, std::chrono::steady_clock::now() + kSignalPeriod);
        std::unique_lock guard(waiter.mutex);
        return waiter.answered.wait_until(guard, until, [&] { return waiter.is_answered; });
    }

    std::shared_ptr<Core> core_;
};

}  // namespace

void bind_master(nb::module_& module) {
    auto type = nb::class_<PyMaster>(module, "Master");
    type.def(nb::init<const nb::kwargs&>())
        .def("start", &PyMaster::start)
        .def("stop", &PyMaster::stop)
        .def("submit", &PyMaster::submit, nb::arg("verb"), nb::arg("body"), nb::arg("callback"))
        .def("execute", &PyMaster::execute, nb::arg("verb"), nb::arg("body"), nb::arg("timeout_ms") = 10'000)
        .def("stats", &PyMaster::stats)
        .def("request_histograms", &PyMaster::request_histograms)
        .def("hear_of_reign", &PyMaster::hear_of_reign, nb::arg("epoch"), nb::arg("master"))
        .def("serve_until", &PyMaster::serve_until, nb::arg("boottime_ms"))
        .def("restore_tombstones", &PyMaster::restore_tombstones, nb::arg("kept"))
        .def("tombstones_kept", &PyMaster::tombstones_kept, nb::arg("generation"))
        .def_prop_ro("tombstones_generation", &PyMaster::tombstones_generation)
        .def_prop_ro("tombstones", &PyMaster::tombstones)
        .def("check_invariants", &PyMaster::check_invariants)
        .def_prop_ro("lane_port", &PyMaster::lane_port)
        .def_prop_ro("epoch", &PyMaster::epoch)
        .def_prop_ro("uuid", &PyMaster::uuid);
    nb::list edges;
    for (const auto edge : master::kLatencyEdgesUs) edges.append(edge);
    type.attr("LATENCY_EDGES_US") = nb::tuple(edges);
    nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
        const GilReleased release;
        LiveMasters::get().stop_all();
    }));
}

}  // namespace mooncake::bindings
