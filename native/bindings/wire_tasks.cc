// Packing and unpacking of the tasks' bodies for Python.
#include "bindings/wire_tasks.h"

#include "bindings/bindings.h"
#include "bindings/wire_convert.h"

using namespace nanobind::literals;

namespace mooncake::bindings {

nb::dict task_dict(const wire::TaskRecord& record, std::string_view message) {
    nb::dict dict;
    dict["task"] = record.task;
    dict["type"] = static_cast<int>(record.type);
    dict["status"] = static_cast<int>(record.status);
    dict["created_ms_ago"] = record.created_ms_ago;
    dict["updated_ms_ago"] = record.updated_ms_ago;
    dict["node"] = record.node;
    dict["message"] = text(message);
    return dict;
}

namespace {

nb::bytes encode_create_task(std::uint64_t session, std::uint64_t sequence, const nb::bytes& key,
                             const std::vector<std::string>& targets, std::string_view source) {
    check_bound("targets", targets.size(), wire::kTaskTargetsMax);
    const auto checked = checked_name("key", wire::as_text(view(key)), wire::kKeyBytesMax);
    if (checked.empty()) throw nb::value_error("a key has 1 to 1024 bytes");
    std::vector<std::string_view> names;
    for (const auto& target : targets) names.push_back(checked_name("target", target));
    return written([&](wire::Writer& writer) {
        wire::encode_create_task({session, sequence, 0, 0}, checked, checked_name("source", source), names,
                                 writer);
    });
}

std::uint64_t parse_create_task_reply(const nb::bytes& body) {
    return parsed(wire::parse_create_task_reply(view(body)), "create_copy_task's answer");
}

nb::dict parse_create_task(const nb::bytes& body) {
    const auto message = parsed(wire::parse_create_task(view(body)), "create_copy_task");
    nb::list targets;
    for (const auto target : message.targets) targets.append(text(target));
    nb::dict dict = request_dict(message.request);
    dict["key"] = to_python(message.key);
    dict["source"] = text(message.source);
    dict["targets"] = targets;
    return dict;
}

nb::bytes encode_create_task_reply(std::uint64_t task) {
    return written([&](wire::Writer& writer) { wire::encode_create_task_reply(task, writer); });
}

nb::dict parse_query_task(const nb::bytes& body) {
    const auto message = parsed(wire::parse_query_task(view(body)), "query_task");
    nb::dict dict = request_dict(message.request);
    dict["task"] = message.task;
    return dict;
}

nb::bytes encode_query_task_reply(std::uint64_t task, int type, int status, std::uint64_t created_ms_ago,
                                  std::uint64_t updated_ms_ago, std::uint64_t node,
                                  std::string_view message) {
    check_bound("type", static_cast<std::size_t>(type), static_cast<std::size_t>(wire::TaskType::kMove));
    check_bound("status", static_cast<std::size_t>(status),
                static_cast<std::size_t>(wire::TaskStatus::kSuccess));
    wire::TaskRecord record;
    record.task = task;
    record.created_ms_ago = created_ms_ago;
    record.updated_ms_ago = updated_ms_ago;
    record.node = node;
    record.type = static_cast<wire::TaskType>(type);
    record.status = static_cast<wire::TaskStatus>(status);
    const auto checked = checked_name("message", message, wire::kTaskMessageBytesMax);
    return written([&](wire::Writer& writer) { wire::encode({record, checked}, writer); });
}

nb::bytes encode_query_task(std::uint64_t session, std::uint64_t task) {
    return written([&](wire::Writer& writer) { wire::encode_query_task({session, 0, 0, 0}, task, writer); });
}

nb::dict parse_query_task_reply(const nb::bytes& body) {
    const auto told = parsed(wire::parse_told_task(view(body)), "query_task's answer");
    return task_dict(told.record, told.message);
}

}  // namespace

void bind_wire_tasks(nb::module_& module) {
    module.def("encode_create_task", &encode_create_task, "session"_a, "sequence"_a, "key"_a, "targets"_a,
               "source"_a = "");
    module.def("parse_create_task_reply", &parse_create_task_reply, "body"_a);
    module.def("parse_create_task", &parse_create_task, "body"_a);
    module.def("encode_create_task_reply", &encode_create_task_reply, "task"_a);
    module.def("parse_query_task", &parse_query_task, "body"_a);
    module.def("encode_query_task_reply", &encode_query_task_reply, "task"_a, nb::kw_only(), "type"_a,
               "status"_a, "created_ms_ago"_a, "updated_ms_ago"_a, "node"_a, "message"_a);
    module.def("encode_query_task", &encode_query_task, "session"_a, "task"_a);
    module.def("parse_query_task_reply", &parse_query_task_reply, "body"_a);
}

}  // namespace mooncake::bindings
