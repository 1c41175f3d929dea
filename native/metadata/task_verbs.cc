// Copies and moves that a client asks for: what may be asked, when it goes on, and how it ends.
//
// A task makes no copies of its own kind: each is one of copy_verbs.cc, with the task's id on it. Whatever
// ends the copy (its node's answer, its deadline, a node that left, the value's end) only puts the task back
// in line, and its next turn finds out what is left to do, or why nothing can be done any more.
#include <algorithm>
#include <cassert>

#include "metadata/machine.h"

namespace mooncake::metadata {

namespace {

constexpr std::uint64_t kRetryMs = 1'000;
// Tasks looked at in one go: most wait.
constexpr std::size_t kExaminedMax = 64;

std::string seconds(std::uint64_t milliseconds) { return std::to_string(milliseconds / 1'000) + " s"; }

}  // namespace

bool Machine::create_task(State& command, Effects& effects) {
    const auto& request = std::get<wire::CreateTask>(command.message);
    const auto refuse = [&](wire::Status status, const std::string& why) {
        command.finish(status, why);
        return true;
    };
    Task task;
    task.type = command.verb == wire::Verb::kCreateMoveTask ? wire::TaskType::kMove : wire::TaskType::kCopy;
    task.tenant = sessions_.find(command.prefix.session)->tenant;
    task.key = request.key;
    Ref ref = table_.find(table_.hash(task.tenant, task.key), task.tenant, task.key);
    if (ref != 0 && !freshen(ref, effects)) ref = 0;
    if (ref == 0) return refuse(absent(), "the key has no value");
    const Object& object = table_.object(ref);
    if (!object.is_visible()) return refuse(wire::Status::kNotReady, "the key's put is under way");
    task.put_id = object.put_id;

    const auto segment_named = [&](std::string_view name, Task::Target& into) {
        const SegmentIndex* index = segments_.find_name(name);
        if (index == nullptr || segments_.at(*index).tier != wire::Tier::kDram) return false;
        into = {segments_.at(*index).id, std::string(name)};
        return true;
    };
    if (request.targets.empty() || request.source.empty() == task.moves() ||
        (task.moves() && (request.targets.size() != 1 || request.targets[0] == request.source))) {
        return refuse(wire::Status::kInvalidParams,
                      task.moves() ? "a move goes from one segment to another one"
                                   : "a copy goes to at least one segment, from wherever the value is");
    }
    for (auto name = request.targets.rbegin(); name != request.targets.rend(); ++name) {
        if (!segment_named(*name, task.targets.emplace_back())) {
            return refuse(wire::Status::kInvalidParams, "no segment is called " + std::string(*name));
        }
    }
    if (task.moves()) {
        if (!segment_named(request.source, task.source)) {
            return refuse(wire::Status::kInvalidParams,
                          "no segment is called " + std::string(request.source));
        }
        if (!is_on(object, *segments_.find(task.source.segment))) {
            return refuse(wire::Status::kReplicaNotFound,
                          "no copy of the value is on " + std::string(request.source));
        }
    }
    if (tasks_.unfinished_count() >= options_.tasks_pending_max) {
        return refuse(wire::Status::kTaskPendingLimitExceeded,
                      std::to_string(options_.tasks_pending_max) + " tasks are under way already");
    }
    task.id = next_id();
    task.created_ms = task.updated_ms = now_ms_;
    wire::Writer writer(command.body);
    wire::encode_create_task_reply(tasks_.add(std::move(task)).id, writer);
    command.finish(wire::Status::kOk);
    go_on_with_tasks(effects);
    return true;
}

bool Machine::query_task(State& command) {
    const Task* task = tasks_.find(std::get<wire::QueryTask>(command.message).task);
    if (task == nullptr || task->tenant != sessions_.find(command.prefix.session)->tenant) {
        command.finish(wire::Status::kTaskNotFound, "no such task, or it ended too long ago");
        return true;
    }
    wire::TaskRecord record;
    record.task = task->id;
    record.created_ms_ago = passed_ms(task->created_ms);
    record.updated_ms_ago = passed_ms(task->updated_ms);
    record.node = task->node;
    record.type = task->type;
    record.status = task->status;
    wire::Writer writer(command.body);
    wire::encode({record, task->message}, writer);
    command.finish(wire::Status::kOk);
    return true;
}

// True: nothing can be done now.
bool Machine::go_on_with_tasks(Effects& effects) {
    bool has_started = false;
    for (std::size_t left = std::min(tasks_.waiting_count(), kExaminedMax); left > 0; --left) {
        Task& task = *tasks_.find(tasks_.take_waiting());
        const TaskStep step = go_on_with(task, effects);
        if (step == TaskStep::kWaits) tasks_.wait(task.id);
        has_started = has_started || step == TaskStep::kStarted;
    }
    return !has_started || tasks_.waiting_count() == 0;
}

Machine::TaskStep Machine::go_on_with(Task& task, Effects& effects) {
    Ref ref = table_.find(table_.hash(task.tenant, task.key), task.tenant, task.key);
    if (ref != 0 && !freshen(ref, effects)) ref = 0;
    // What lies there by now needs no copy.
    while (ref != 0 && table_.object(ref).put_id == task.put_id && !task.targets.empty()) {
        const SegmentIndex* target = segments_.find(task.targets.back().segment);
        if (target == nullptr || !is_on(table_.object(ref), *target)) break;
        task.targets.pop_back();
        task.attempts = 0;
    }
    std::string why = why_impossible(task, ref);
    if (!why.empty()) {
        end_task(task, wire::TaskStatus::kFailed, std::move(why));
        return TaskStep::kEnded;
    }
    if (task.targets.empty()) {
        if (const SegmentIndex* source = segments_.find(task.source.segment)) {
            // It lay on the target before the task came; there is nothing else to do than to end it here.
            const Object& object = table_.object(ref);
            if (object.has(kGuarded)) return TaskStep::kWaits;
            for (std::size_t i = 0; i < object.replica_count; ++i) {
                const Placed one = placed(object, i);
                if (one.segment != *source) continue;
                drop_replica(ref, one, ReplicaEvent::kMoved, effects);
                break;
            }
            if (object.replica_count < object.replicas_wanted) queue_repair(ref, 0);
        }
        end_task(task, wire::TaskStatus::kSuccess, task.moves() ? "moved" : "copied");
        return TaskStep::kEnded;
    }
    const bool has_begun = task.status == wire::TaskStatus::kProcessing;
    const std::uint64_t timeout_ms =
        has_begun ? options_.task_processing_timeout_ms : options_.task_pending_timeout_ms;
    if (timeout_ms != 0 && passed_ms(has_begun ? task.begun_ms : task.created_ms) >= timeout_ms) {
        end_task(task, wire::TaskStatus::kFailed,
                 std::string(has_begun ? "not done within " : "could not begin within ") +
                     seconds(timeout_ms) + (task.message.empty() ? "" : ": " + task.message));
        return TaskStep::kEnded;
    }
    return task.due_ms > now_ms_ ? TaskStep::kWaits : copy_for(task, ref, effects);
}

// Why it cannot be done any more; empty: it may.
std::string Machine::why_impossible(const Task& task, Ref ref) const {
    if (ref == 0 || !table_.object(ref).is_visible()) return "the value was removed, evicted or lost";
    if (table_.object(ref).put_id != task.put_id) return "the value was replaced by another one";
    if (task.moves()) {
        const SegmentIndex* source = segments_.find(task.source.segment);
        if (source == nullptr) return "its source " + task.source.name + " left the pool";
        if (!is_on(table_.object(ref), *source)) return "no copy is on its source " + task.source.name;
    }
    if (task.targets.empty()) return {};
    const std::string& name = task.targets.back().name;
    const SegmentIndex* target = segments_.find(task.targets.back().segment);
    if (target == nullptr) return "its target " + name + " left the pool";
    if (segments_.at(*target).is_draining) return "its target " + name + " is about to leave the pool";
    if (task.attempts >= options_.task_attempts_max) {
        return "given up after " + std::to_string(task.attempts) + " attempts: " + task.message;
    }
    return {};
}

Machine::TaskStep Machine::copy_for(Task& task, Ref ref, Effects& effects) {
    const Object& object = table_.object(ref);
    const SegmentIndex to = *segments_.find(task.targets.back().segment);
    const Segment& target = segments_.at(to);
    if (object.has(kGuarded) || !may_copy_more() || is_busy_copying(target.owner)) return TaskStep::kWaits;
    if (!target.is_reported || !answers(target)) return postpone(task, target.name + " does not answer");
    if (!target.fits(bytes_on(to, object.size))) return postpone(task, "no room on " + target.name);
    if (object.replica_count == wire::kReplicasMax)
        return postpone(task, "there are as many copies as may be");
    bool has_answering = false;
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const Placed source = placed(object, i);
        const Segment& segment = segments_.at(source.segment);
        if (task.moves() && segment.id != task.source.segment) continue;
        if (!answers(segment)) continue;
        has_answering = true;
        if (is_busy_copying(segment.owner)) continue;
        if (task.status == wire::TaskStatus::kPending) task.begun_ms = now_ms_;
        task.status = wire::TaskStatus::kProcessing;
        task.updated_ms = now_ms_;
        task.node = target.owner;
        start_copy(ref, source, to, {task.moves(), 0, task.id}, effects);
        return TaskStep::kStarted;
    }
    return has_answering ? TaskStep::kWaits : postpone(task, "no node that has the value answers");
}

Machine::TaskStep Machine::postpone(Task& task, std::string_view why) {
    ++task.attempts;
    task.due_ms = later(kRetryMs);
    task.updated_ms = now_ms_;
    task.message = why;
    return TaskStep::kWaits;
}

void Machine::end_task(Task& task, wire::TaskStatus status, std::string message) {
    ++(status == wire::TaskStatus::kSuccess ? counters_.tasks_succeeded : counters_.tasks_failed);
    task.status = status;
    task.updated_ms = now_ms_;
    task.message = std::move(message);
    task.key = {};
    task.source = {};
    task.targets = {};
    tasks_.ended(task.id, options_.tasks_finished_max);
}

void Machine::task_copied(const Copy& copy) {
    Task& task = *tasks_.find(copy.task);
    assert(task.is_unfinished() && !task.targets.empty());
    task.targets.pop_back();
    task.attempts = 0;
    task.updated_ms = now_ms_;
    if (task.targets.empty()) {
        end_task(task, wire::TaskStatus::kSuccess, task.moves() ? "moved" : "copied");
    } else {
        tasks_.wait(task.id);
    }
}

void Machine::task_copy_failed(const Copy& copy, std::string_view why) {
    Task& task = *tasks_.find(copy.task);
    postpone(task, "a copy to " + task.targets.back().name + " failed: " + std::string(why));
    tasks_.wait(task.id);
}

}  // namespace mooncake::metadata
