#include "node/control.h"

#include <utility>

#include "net/discover.h"
#include "node/control_state.h"

namespace mooncake::node {

namespace {

// Finds the lane, asking the masters in turn, and dials it. Nothing else runs on the loop while there is no
// connection, so finding may block.
class LaneDialler {
  public:
    LaneDialler(net::EventLoop& loop, const ControlOptions& options)
        : loop_(loop),
          masters_(options.masters),
          lane_(options.lane),
          timeout_ms_(options.connect_timeout_ms) {}

    void operator()(std::unique_ptr<net::ConnectionHandler> handler, Control::State::Connected connected) {
        std::string why;
        const auto lane = find(why);
        if (!lane) return connected(nullptr, why);
        net::connect(loop_, lane->host, lane->port, timeout_ms_, net::ConnectionLimits{}, std::move(handler),
                     std::move(connected));
    }

  private:
    std::optional<net::Endpoint> find(std::string& why) {
        if (lane_) return lane_;
        if (masters_.empty()) {
            why = "no master's address is configured";
            return std::nullopt;
        }
        const net::Endpoint& master = masters_[next_master_++ % masters_.size()];
        const net::Discovery discovery = net::discover(master, timeout_ms_);
        if (discovery.found) return discovery.lane;
        why = discovery.why;
        return std::nullopt;
    }

    net::EventLoop& loop_;
    const std::vector<net::Endpoint> masters_;
    const std::optional<net::Endpoint> lane_;
    const std::uint64_t timeout_ms_;
    std::size_t next_master_ = 0;
};

CopierOptions copier_options(const ControlOptions& options) {
    CopierOptions copier;
    copier.connect_timeout_ms = options.connect_timeout_ms;
    copier.software = options.software;
    return copier;
}

}  // namespace

void ControlStatus::follow(const wire::Uuid& next) {
    if (mounts_total > 0 && master != next) {
        std::erase(masters_before, next);
        masters_before.push_back(master);
        if (masters_before.size() > kMastersBeforeMax) masters_before.erase(masters_before.begin());
    }
    master = next;
}

Control::Control(std::shared_ptr<Holdings> holdings, const ControlOptions& options,
                 std::function<void(const wire::Uuid&)> incarnation_changed)
    : loops_("mc-control", 1),
      copier_(std::make_unique<Copier>(holdings, copier_options(options))),
      state_(std::make_shared<State>(loops_.at(0), holdings, options, LaneDialler(loops_.at(0), options),
                                     std::move(incarnation_changed),
                                     [copier = copier_.get()](CopyTask task, CopyDone done) {
                                         copier->fetch(std::move(task), std::move(done));
                                     })) {
    reigns_ = std::make_unique<ReignWatch>(options.masters, options.connect_timeout_ms, [this] {
        const ControlStatus now = status();
        if (!now.mounted) return ReignWatch::Followed{};
        return ReignWatch::Followed{{now.epoch, now.master}, now.client_ttl_ms, now.masters_before};
    });
    holdings->on_freed([state = std::weak_ptr<State>(state_)] {
        if (const auto alive = state.lock()) alive->ranges_freed();
    });
}

Control::~Control() { stop(); }

void Control::start() {
    state_->start();
    reigns_->start();
}

void Control::stop(std::uint64_t handover_ms) {
    reigns_->stop();
    state_->leave(handover_ms);
    state_->wait_left(handover_ms + state_->leave_timeout_ms());
    copier_->stop();
    loops_.stop();
}

bool Control::wait_mounted(std::uint64_t timeout_ms) { return state_->wait_mounted(timeout_ms); }

ControlStatus Control::status() const { return state_->status(); }

}  // namespace mooncake::node
