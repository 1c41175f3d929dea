// Control::State: the control connection as a small state machine on its loop. See control.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "net/connection.h"
#include "net/event_loop.h"
#include "node/control.h"
#include "wire/control.h"
#include "wire/lane.h"
#include "wire/tombstones.h"

namespace mooncake::node {

class Control::State : public std::enable_shared_from_this<Control::State> {
  public:
    // How it comes by a connection to the master: `connected` is called on the loop, once, with it or with
    // nullptr and why. The handler takes the connection's frames.
    using Connected = std::function<void(std::shared_ptr<net::Connection>, const std::string&)>;
    using Dial = std::function<void(std::unique_ptr<net::ConnectionHandler>, Connected)>;

    // Makes one copy; answers on any thread, once.
    using Fetch = std::function<void(CopyTask, CopyDone)>;

    State(net::EventLoop& loop, std::shared_ptr<Holdings> holdings, ControlOptions options, Dial dial,
          std::function<void(const wire::Uuid&)> incarnation_changed, Fetch fetch);

    // Any thread.
    void start();
    void leave(std::uint64_t handover_ms);  // begins to stop; wait_left tells when it is done
    bool wait_left(std::uint64_t timeout_ms);
    std::uint64_t leave_timeout_ms() const { return options_.leave_timeout_ms; }
    bool wait_mounted(std::uint64_t timeout_ms);
    ControlStatus status();
    void ranges_freed();

    // Loop thread: what the connection's handler hears. `attempt` tells an older connection's last words.
    void on_frame(std::uint64_t attempt, const wire::FrameHeader& header, wire::Bytes body);
    void on_close(std::uint64_t attempt, std::string_view reason);

  private:
    enum class Phase : std::uint8_t {
        kApart,
        kDialing,
        kHello,
        kOpening,
        kMounting,
        kMounted,
        kLeaving,
        kLeft
    };
    struct Pending {
        wire::Verb verb = wire::Verb::kPing;
        std::uint64_t request_id = 0;  // 0: nothing is asked
        std::uint64_t asked_ms = 0;    // boottime
        std::size_t freed_count = 0;   // of a report
    };

    void attempt();
    void connected(std::uint64_t attempt, std::shared_ptr<net::Connection> connection,
                   const std::string& why);
    void fail(const std::string& why);
    void drop_connection(const std::string& why);
    void retry_after(std::uint64_t delay_ms);

    void ask(wire::Verb verb, const std::function<void(wire::Writer&)>& body);
    wire::Prefix prefix(bool mutating);
    void say_hello();
    void open_session();
    void mount();
    void report();
    void next_inventory_chunk();
    void next_holdings_chunk();
    void drain();
    std::vector<wire::SegmentId> mounted_ids();
    void unmount();
    void close_session();

    void on_answer(const wire::FrameHeader& header, wire::Bytes body);
    void on_opened(wire::Bytes body);
    void on_mounted(const wire::FrameHeader& header, wire::Bytes body);
    void on_reported(wire::Bytes body);
    void on_inventory_taken();
    void on_holdings_taken();
    void ask_tombstones();
    void on_tombstones(wire::Bytes body);
    // An answer came while the connection is mounted: what else is to be asked.
    void go_on();
    void on_drained(wire::Bytes body);
    void on_retire(const wire::FrameHeader& header, wire::Bytes body);
    bool refuse_outdated(const wire::FrameHeader& header);
    void on_copy(const wire::FrameHeader& header, wire::Bytes body);
    void copied(wire::ReplicaId target, wire::Status status);

    bool holds_back();
    bool may_follow(const wire::OpenSessionReply& reply, std::string& why) const;
    void adopt(std::uint64_t epoch);
    void start_over(const std::string& why);
    void give_up_all();
    void new_incarnation();
    void heartbeat();
    void left();
    template <class Change>
    void change_status(Change&& change) {
        {
            const std::lock_guard lock(status_mutex_);
            change(status_);
        }
        status_changed_.notify_all();
    }

    net::EventLoop& loop_;
    std::shared_ptr<Holdings> holdings_;
    const ControlOptions options_;
    const Dial dial_;
    std::function<void(const wire::Uuid&)> incarnation_changed_;
    const Fetch fetch_;

    // Loop thread only.
    Phase phase_ = Phase::kApart;
    std::uint64_t attempt_ = 0;
    std::uint64_t retry_ms_;
    std::shared_ptr<net::Connection> connection_;
    Pending pending_;
    net::EventLoop::TimerId request_timer_ = 0;
    net::EventLoop::TimerId heartbeat_timer_ = 0;
    bool report_due_ = false;
    bool drain_due_ = false;
    std::uint64_t drain_until_ms_ = 0;                // monotonic; above 0: about to leave
    std::set<wire::ReplicaId> copying_;               // targets that were ordered and are not answered
    std::map<wire::ReplicaId, wire::Status> copied_;  // of these, done while no master listened
    std::uint64_t last_request_id_ = 0;
    std::uint64_t last_sequence_ = 0;

    // What is known of the master followed. Loop thread only.
    wire::Uuid incarnation_{};
    std::uint64_t epoch_ = 0;
    wire::Uuid master_{};
    wire::OpenSessionReply session_;       // session 0: none
    wire::SessionId mounted_session_ = 0;  // in which master_ mounted this incarnation; 0: never
    wire::ReplicaId settled_id_ = 0;
    std::uint64_t last_command_id_ = 0;

    // What a master that did not grant it is told of all that is held. Loop thread only.
    struct InventoryProgress {
        std::size_t part = 0;  // of the directory's; the next one to list
        std::vector<wire::ReplicaId> listed;
        std::size_t described_count = 0;  // of listed
        wire::InventoryTotals totals;
        bool is_last_sent = false;
    };
    bool inventory_due_ = false;
    InventoryProgress inventory_;

    // What a master that counts otherwise is told of one segment. Loop thread only.
    struct HoldingsProgress {
        std::uint64_t comparison = 0;  // 0: none is asked for
        wire::SegmentId segment = 0;
        std::size_t part = 0;       // of the directory's; the next one to list,
        wire::ReplicaId after = 0;  // beyond this id
        bool is_last_sent = false;
    };
    HoldingsProgress listing_;

    // What the master followed would have a later one know (wire/tombstones.h), encoded; handed to the next.
    // Loop thread only.
    wire::Buffer tombstones_;
    wire::Uuid tombstones_master_{};
    std::uint64_t tombstones_generation_ = 0;
    bool tombstones_due_ = false;

    // This node did not hear its master's last words in time: others, which did, go first to a new one.
    bool is_out_of_touch_ = false;
    std::uint64_t hold_back_until_ms_ = 0;  // boottime; 0: not begun

    std::atomic<bool> freed_posted_ = false;
    std::mutex status_mutex_;  // guards status_ and left_
    std::condition_variable status_changed_;
    ControlStatus status_;
    bool left_ = false;
};

}  // namespace mooncake::node
