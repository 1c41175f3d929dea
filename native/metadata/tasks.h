// Copies and moves that clients asked for, each by its id, until they have ended and for some time after.
// Owns the table and its order; Machine decides (task_verbs.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "wire/ids.h"
#include "wire/tasks.h"

namespace mooncake::metadata {

struct Task {
    struct Target {
        wire::SegmentId segment = 0;
        std::string name;
    };

    wire::TaskId id = 0;
    wire::TaskType type = wire::TaskType::kCopy;
    wire::TaskStatus status = wire::TaskStatus::kPending;
    std::uint32_t tenant = 0;
    std::uint64_t created_ms = 0;
    std::uint64_t begun_ms = 0;  // its first copy
    std::uint64_t updated_ms = 0;
    wire::SessionId node = 0;
    std::string message;

    // Until it ends. A task is of one value: another put of the key ends it.
    std::string key;
    wire::PutId put_id = 0;
    Target source;                // of a move
    std::vector<Target> targets;  // not reached yet; the last one is next
    std::uint64_t due_ms = 0;     // not before; after a copy that failed
    std::uint32_t attempts = 0;   // to reach the next target that failed

    bool is_unfinished() const {
        return status == wire::TaskStatus::kPending || status == wire::TaskStatus::kProcessing;
    }
    bool moves() const { return type == wire::TaskType::kMove; }
};

class Tasks {
  public:
    const Task* find(wire::TaskId id) const {
        const auto found = all_.find(id);
        return found == all_.end() ? nullptr : &found->second;
    }
    Task* find(wire::TaskId id) { return const_cast<Task*>(std::as_const(*this).find(id)); }

    // Its id must be new; it waits for its turn.
    Task& add(Task task) {
        const wire::TaskId id = task.id;
        wait(id);
        return all_.emplace(id, std::move(task)).first->second;
    }
    // A task that neither waits nor has ended is called copying.
    void wait(wire::TaskId id) { waiting_.push_back(id); }
    wire::TaskId take_waiting() {
        const wire::TaskId id = waiting_.front();
        waiting_.pop_front();
        return id;
    }
    // It has ended; so many ended ones are remembered, the last.
    void ended(wire::TaskId id, std::size_t finished_max) {
        finished_.push_back(id);
        while (finished_.size() > finished_max) {
            all_.erase(finished_.front());
            finished_.pop_front();
        }
    }

    const std::map<wire::TaskId, Task>& all() const { return all_; }
    std::size_t waiting_count() const { return waiting_.size(); }
    std::size_t unfinished_count() const { return all_.size() - finished_.size(); }

  private:
    std::map<wire::TaskId, Task> all_;
    std::deque<wire::TaskId> waiting_;   // in turn
    std::deque<wire::TaskId> finished_;  // oldest first
};

}  // namespace mooncake::metadata
