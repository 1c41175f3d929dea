#include "node/control.h"

#include "node/control_state.h"

namespace mooncake::node {

Control::Control(std::shared_ptr<Holdings> holdings, ControlOptions options,
                 std::function<void(const wire::Uuid&)> incarnation_changed)
    : loops_("mc-control", 1),
      state_(std::make_shared<State>(loops_.at(0), holdings, std::move(options),
                                     std::move(incarnation_changed))) {
    holdings->on_freed([state = std::weak_ptr<State>(state_)] {
        if (const auto alive = state.lock()) alive->ranges_freed();
    });
}

Control::~Control() { stop(); }

void Control::start() { state_->start(); }

void Control::stop() {
    state_->leave();
    state_->wait_left(state_->leave_timeout_ms());
    loops_.stop();
}

bool Control::wait_mounted(std::uint64_t timeout_ms) { return state_->wait_mounted(timeout_ms); }

ControlStatus Control::status() const { return state_->status(); }

}  // namespace mooncake::node
