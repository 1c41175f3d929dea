// Tasks: copies and moves of one value that a client asks the master for, and asks after. Layouts:
// proto/FRAMES.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "wire/lane.h"

namespace mooncake::wire {

inline constexpr std::size_t kTaskTargetsMax = kReplicasMax;
inline constexpr std::size_t kTaskMessageBytesMax = 1'024;

// create_copy_task, create_move_task: Prefix, text16 key, text16 source, u32 count, text16 targets. Segments
// by name; of a copy the source is empty, of a move there is one target. Answer: u64 task.
struct CreateTask {
    Request request;
    std::string_view key;
    std::string_view source;
    std::vector<std::string_view> targets;
};
void encode_create_task(const Prefix& prefix, std::string_view key, std::string_view source,
                        std::span<const std::string_view> targets, Writer& writer);
std::optional<CreateTask> parse_create_task(Bytes body);
void encode_create_task_reply(TaskId task, Writer& writer);
std::optional<TaskId> parse_create_task_reply(Bytes body);

// query_task: Prefix, u64 task. TASK_NOT_FOUND for the whole frame: unknown, forgotten, or another tenant's.
struct QueryTask {
    Request request;
    TaskId task = 0;
};
void encode_query_task(const Prefix& prefix, TaskId task, Writer& writer);
std::optional<QueryTask> parse_query_task(Bytes body);

enum class TaskType : std::uint8_t { kCopy = 0, kMove = 1 };
enum class TaskStatus : std::uint8_t { kPending = 0, kProcessing = 1, kFailed = 2, kSuccess = 3 };

// Its answer: the record, then text16 message.
struct TaskRecord {
    TaskId task = 0;
    std::uint64_t created_ms_ago = 0;
    std::uint64_t updated_ms_ago = 0;
    SessionId node = 0;  // the last that was told to make a copy; 0: none yet
    TaskType type = TaskType::kCopy;
    TaskStatus status = TaskStatus::kPending;
    std::uint16_t zero = 0;
    std::uint32_t zero2 = 0;
};
static_assert(sizeof(TaskRecord) == 40);
struct ToldTask {
    TaskRecord record;
    std::string_view message;  // how it ended, or what it waits for
};
void encode(const ToldTask& task, Writer& writer);
std::optional<ToldTask> parse_told_task(Bytes body);

}  // namespace mooncake::wire
