// _core.AsyncClient and _core.PendingCall: the native client for callers that do not wait. A method hands its
// call to the client's threads and gives a PendingCall; an event loop that watches fileno() learns by
// take_done() which are over. No thread of the queue ever takes the GIL, so calls go on however busy Python
// is. Everything here is called with the GIL, by the thread of one event loop, except close().
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <unistd.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "bindings/client_calls.h"
#include "bindings/client_settings.h"
#include "bindings/gil.h"
#include "client/client.h"
#include "net/call_queue.h"
#include "net/event_loop.h"

namespace mooncake::bindings {

using namespace nanobind::literals;
using client::CallReport;
using client::Client;
using net::CallQueue;
using net::QueuedCall;

namespace {

using Interrupted = std::function<bool()>;

class PendingCall : public QueuedCall {
  public:
    using QueuedCall::QueuedCall;

    virtual bool has_more() { return false; }
    virtual nb::object answer() = 0;

    // With the GIL, when it has returned: true when it must run once more.
    bool settle() {
        try {
            if (!failure() && !is_expired() && has_more()) return true;
        } catch (...) {
            thrown_ = std::current_exception();
        }
        is_done_ = true;
        return false;
    }
    bool is_done() const { return is_done_; }

    nb::object take_answer() {
        if (!is_done_ || is_expired()) {
            throw std::runtime_error(is_done_ ? "the call never ran" : "the call is not over");
        }
        for (const auto& error : {failure(), thrown_}) {
            if (error) std::rethrow_exception(error);
        }
        return answer();
    }

  private:
    bool is_done_ = false;
    std::exception_ptr thrown_;
};

class AsyncClient {
  public:
    AsyncClient(const client::Options& options, std::size_t threads_max, std::size_t waiting_max)
        : options_(options),
          process_(::getpid()),
          queue_(std::make_unique<CallQueue>(threads_max, waiting_max)),
          waiting_max_(waiting_max) {}

    ~AsyncClient() {
        if (process_ != ::getpid()) {
            // The threads are the parent's, and so is what the locks guard: the child leaves it all alone.
            (void)client_.release();
            (void)queue_.release();
            return;
        }
        close();
    }

    const client::Options& options() const { return options_; }
    bool is_connected() const { return client_ && client_->is_connected(); }
    client::LocationCounts location_counts() const {
        return client_ ? client_->location_counts() : client::LocationCounts{};
    }
    bool is_over_grpc() const { return client_ && client_->is_over_grpc(); }
    std::vector<client::LocalPeer> local_peers() const {
        return client_ ? client_->local_peers() : std::vector<client::LocalPeer>{};
    }
    bool is_closed() const { return is_closed_ || process_ != ::getpid(); }
    int fileno() const { return queue_->fd(); }
    Client* client() const { return client_.get(); }
    void set_client(std::unique_ptr<Client> client) { client_ = std::move(client); }

    std::shared_ptr<PendingCall> submit(std::shared_ptr<PendingCall> call) {
        switch (queue_->submit(call)) {
            case CallQueue::Submitted::kTaken:
                break;
            case CallQueue::Submitted::kClosed:
                finish(*call);
                break;
            case CallQueue::Submitted::kFull:
                PyErr_SetString(PyExc_BlockingIOError,
                                (std::to_string(waiting_max_) + " calls wait for a thread already").c_str());
                throw nb::python_error();
        }
        return call;
    }

    // The ids of those that are over, each once.
    std::vector<std::uint64_t> take_done() {
        std::vector<std::uint64_t> ids;
        for (auto& call : queue_->take_done()) {
            auto& pending = static_cast<PendingCall&>(*call);
            if (!pending.settle()) {
                ids.push_back(pending.id());
            } else if (!queue_->resubmit(call)) {
                finish(pending);
                ids.push_back(pending.id());
            }
        }
        return ids;
    }

    bool cancel(std::uint64_t id) { return queue_->cancel(id); }
    void wait(std::uint64_t id) {
        const GilReleased released;
        queue_->wait(id);
    }
    void expire() { queue_->expire(net::monotonic_ms()); }

    void close() {
        is_closed_ = true;
        if (process_ != ::getpid()) return;
        auto* const client = client_.get();
        const GilReleased released;
        if (client != nullptr) client->close();
        queue_->close();
    }

  private:
    // The queue is closed and so is the client: it answers at once, and no thread is left to run on.
    static void finish(PendingCall& call) {
        do {
            call.run([] { return true; });
        } while (call.settle());
    }

    const client::Options options_;
    const pid_t process_;
    std::unique_ptr<Client> client_;
    std::unique_ptr<CallQueue> queue_;
    const std::size_t waiting_max_;
    bool is_closed_ = false;
};

class Connecting final : public PendingCall {
  public:
    explicit Connecting(AsyncClient& owner)
        : PendingCall(net::monotonic_ms() + owner.options().connect_timeout_ms), owner_(owner) {}

    void run(const Interrupted& interrupted) override {
        made_ = Client::connect(owner_.options(), why_, status_, interrupted);
    }
    nb::object answer() override {
        if (!made_) raise_not_connected(status_, why_);
        owner_.set_client(std::move(made_));
        return nb::none();
    }

  private:
    AsyncClient& owner_;  // which every PendingCall keeps alive
    std::unique_ptr<Client> made_;
    std::string why_;
    wire::Status status_ = wire::Status::kOk;
};

class Asking final : public PendingCall {
  public:
    Asking(AsyncClient& owner, Call call, std::uint64_t until_ms)
        : PendingCall(until_ms), owner_(owner), client_(*owner.client()), call_(std::move(call)) {}

    void run(const Interrupted& interrupted) override {
        const auto now_ms = net::monotonic_ms();
        report_ = {};
        call_->run(client_, {std::max(deadline_ms, now_ms + 1) - now_ms, interrupted}, report_);
    }
    bool has_more() override { return !is_interrupted() && call_->has_more(); }
    nb::object answer() override {
        last_why() = report_.why;
        return call_->answer(nb::find(owner_));
    }

  private:
    AsyncClient& owner_;
    Client& client_;
    Call call_;
    CallReport report_;
};

std::unique_ptr<AsyncClient> make(const client::Options& options, std::size_t threads_max,
                                  std::size_t waiting_max) {
    if (threads_max == 0 || waiting_max == 0)
        throw nb::value_error("threads_max and waiting_max must be > 0");
    return std::make_unique<AsyncClient>(options, threads_max, waiting_max);
}

std::shared_ptr<PendingCall> ask(AsyncClient& self, Call call, std::uint64_t timeout_ms) {
    if (self.client() == nullptr) throw std::runtime_error("the client is not connected");
    if (timeout_ms == 0) timeout_ms = self.options().rpc_timeout_ms;
    return self.submit(std::make_shared<Asking>(self, std::move(call), net::monotonic_ms() + timeout_ms));
}

}  // namespace

void bind_async_client(nb::module_& module) {
    nb::class_<PendingCall>(module, "PendingCall")
        .def_prop_ro("id", &PendingCall::id)
        .def_prop_ro("is_done", &PendingCall::is_done)
        .def_prop_ro("is_expired", &PendingCall::is_expired)
        .def("answer", &PendingCall::take_answer);

    nb::class_<AsyncClient> bound(module, "AsyncClient");
    define_settings(bound, make, "threads_max"_a, "waiting_max"_a);
    define_calls(bound, ask, nb::keep_alive<0, 1>());
    bound
        .def(
            "connect", [](AsyncClient& self) { return self.submit(std::make_shared<Connecting>(self)); },
            nb::keep_alive<0, 1>())
        .def("fileno", &AsyncClient::fileno)
        .def("take_done", &AsyncClient::take_done)
        .def("cancel", &AsyncClient::cancel, "call_id"_a)
        .def("wait", &AsyncClient::wait, "call_id"_a)
        .def("expire", &AsyncClient::expire)
        .def("close", &AsyncClient::close)
        .def_prop_ro("is_closed", &AsyncClient::is_closed)
        .def_prop_ro("is_connected", &AsyncClient::is_connected)
        .def_prop_ro("is_over_grpc", &AsyncClient::is_over_grpc)
        .def_prop_ro("local_nodes",
                     [](const AsyncClient& self) { return local_node_list(self.local_peers()); })
        .def_prop_ro("location_counts",
                     [](const AsyncClient& self) { return to_python(self.location_counts()); });
}

}  // namespace mooncake::bindings
