#include "wire/tasks.h"

namespace mooncake::wire {

void encode_create_task(const Prefix& prefix, std::string_view key, std::string_view source,
                        std::span<const std::string_view> targets, Writer& writer) {
    encode_prefix(prefix, {}, writer);
    writer.text16(key);
    writer.text16(source);
    writer.put(static_cast<std::uint32_t>(targets.size()));
    for (const auto target : targets) writer.text16(target);
}

std::optional<CreateTask> parse_create_task(Bytes body) {
    Reader reader(body);
    CreateTask message;
    message.request = parse_prefix(reader);
    message.key = reader.text16(kKeyBytesMax);
    message.source = reader.text16(kNameBytesMax);
    const auto count = reader.get<std::uint32_t>();
    if (count > kTaskTargetsMax || message.key.empty()) reader.fail();
    for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
        message.targets.push_back(reader.text16(kNameBytesMax));
    }
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_create_task_reply(TaskId task, Writer& writer) { writer.put(task); }

std::optional<TaskId> parse_create_task_reply(Bytes body) {
    Reader reader(body);
    const auto task = reader.get<TaskId>();
    if (!reader.finished() || task == 0) return std::nullopt;
    return task;
}

void encode_query_task(const Prefix& prefix, TaskId task, Writer& writer) {
    encode_prefix(prefix, {}, writer);
    writer.put(task);
}

std::optional<QueryTask> parse_query_task(Bytes body) {
    Reader reader(body);
    QueryTask message;
    message.request = parse_prefix(reader);
    message.task = reader.get<TaskId>();
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode(const ToldTask& task, Writer& writer) {
    writer.put(task.record);
    writer.text16(task.message.substr(0, kTaskMessageBytesMax));
}

std::optional<ToldTask> parse_told_task(Bytes body) {
    Reader reader(body);
    ToldTask task;
    task.record = reader.get<TaskRecord>();
    task.message = reader.text16(kTaskMessageBytesMax);
    if (task.record.type > TaskType::kMove || task.record.status > TaskStatus::kSuccess) reader.fail();
    if (!reader.finished()) return std::nullopt;
    return task;
}

}  // namespace mooncake::wire
