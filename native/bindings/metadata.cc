// The metadata state machine for tests: commands in, answers and effects out, time as an argument. The daemon
// uses the native master instead, which drives the same class without Python.
#include "metadata/metadata.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/wire_convert.h"

using namespace nanobind::literals;

namespace mooncake::bindings {

namespace {

using metadata::Command;
using metadata::Effect;
using metadata::Effects;
using metadata::Metadata;
using metadata::Options;

const char* kind_name(Effect::Kind kind) {
    switch (kind) {
        case Effect::Kind::kRetire:
            return "retire";
        case Effect::Kind::kAwait:
            return "await";
        case Effect::Kind::kExpel:
            return "expel";
        case Effect::Kind::kUnheard:
            return "unheard";
        case Effect::Kind::kLostCopy:
            return "lost_copy";
        case Effect::Kind::kEndSession:
            return "end_session";
        case Effect::Kind::kMounted:
            return "mounted";
        case Effect::Kind::kCopy:
            return "copy";
        case Effect::Kind::kProbe:
            return "probe";
        case Effect::Kind::kSpaceReturned:
            return "space_returned";
    }
    return "?";
}

nb::list to_python(const Effects& effects) {
    nb::list list;
    for (const auto& effect : effects) {
        list.append(nb::make_tuple(kind_name(effect.kind), effect.segment, effect.replica, effect.session));
    }
    return list;
}

metadata::AllocationStrategy strategy_of(const std::string& name) {
    if (name == "random") return metadata::AllocationStrategy::kRandom;
    if (name == "free_ratio_first") return metadata::AllocationStrategy::kFreeRatioFirst;
    if (name == "local_first") return metadata::AllocationStrategy::kLocalFirst;
    throw nb::value_error(
        ("allocation is random, free_ratio_first or local_first, not '" + name + "'").c_str());
}

metadata::EvictionPolicyKind policy_of(const std::string& name) {
    if (const auto kind = metadata::eviction_policy_of(name)) return *kind;
    throw nb::value_error(("no eviction policy is called '" + name + "'").c_str());
}

metadata::ProbeResult result_of(const std::string& name) {
    if (name == "answered") return metadata::ProbeResult::kAnswered;
    if (name == "refused") return metadata::ProbeResult::kRefused;
    if (name == "failed") return metadata::ProbeResult::kFailed;
    throw nb::value_error(("a probe is answered, refused or failed, not '" + name + "'").c_str());
}

Options to_options(const nb::kwargs& settings) {
    Options options;
    for (const auto [key, value] : settings) {
        const auto name = nb::cast<std::string>(key);
        const auto set = [&](const char* expected, auto& field) {
            if (name != expected) return false;
            field = nb::cast<std::remove_reference_t<decltype(field)>>(value);
            return true;
        };
        if (name == "allocation") {
            options.allocation = strategy_of(nb::cast<std::string>(value));
            continue;
        }
        if (name == "eviction_policy") {
            options.eviction_policy = policy_of(nb::cast<std::string>(value));
            continue;
        }
        const bool known =
            set("client_ttl_ms", options.client_ttl_ms) ||
            set("session_grace_ms", options.session_grace_ms) ||
            set("heartbeat_interval_ms", options.heartbeat_interval_ms) ||
            set("lease_ttl_ms", options.lease_ttl_ms) || set("exists_hold_ms", options.exists_hold_ms) ||
            set("put_start_discard_ms", options.put_start_discard_ms) ||
            set("put_start_release_ms", options.put_start_release_ms) ||
            set("soft_pin_ms", options.soft_pin_ms) || set("soft_pin_max_ms", options.soft_pin_max_ms) ||
            set("evict_soft_pinned", options.evict_soft_pinned) ||
            set("eviction_high_watermark_ratio", options.eviction_high_watermark_ratio) ||
            set("eviction_ratio", options.eviction_ratio) || set("max_keys", options.max_keys) ||
            set("max_metadata_bytes", options.max_metadata_bytes) || set("copies_max", options.copies_max) ||
            set("copies_a_node_max", options.copies_a_node_max) ||
            set("copy_timeout_ms", options.copy_timeout_ms) ||
            set("repair_low_watermark_ratio", options.repair_low_watermark_ratio) ||
            set("repair_bytes_per_s", options.repair_bytes_per_s) ||
            set("repair_queue_max", options.repair_queue_max) ||
            set("handover_keys_max", options.handover_keys_max) ||
            set("tasks_pending_max", options.tasks_pending_max) ||
            set("tasks_finished_max", options.tasks_finished_max) ||
            set("task_pending_timeout_ms", options.task_pending_timeout_ms) ||
            set("task_processing_timeout_ms", options.task_processing_timeout_ms) ||
            set("task_attempts_max", options.task_attempts_max) ||
            set("replay_window", options.replay_window) || set("journal_events", options.journal_events) ||
            set("replay_bytes_max", options.replay_bytes_max) || set("sessions_max", options.sessions_max) ||
            set("segments_max", options.segments_max) || set("keys_a_step_max", options.keys_a_step_max);
        if (!known) throw nb::value_error(("no setting of the state machine is called " + name).c_str());
    }
    return options;
}

void construct(Metadata* self, std::uint64_t epoch, const nb::bytes& master, std::uint64_t seed,
               const nb::kwargs& settings) {
    new (self) Metadata(to_options(settings), epoch, to_uuid(master), seed);
}

Command start(int verb, const nb::bytes& body) {
    return Metadata::command(static_cast<wire::Verb>(verb), view(body));
}

nb::list run(Metadata& self, Command& command, std::uint64_t now_ms) {
    Effects effects;
    while (!self.step(command, now_ms, effects)) {
    }
    return to_python(effects);
}

nb::tuple execute(Metadata& self, int verb, const nb::bytes& body, std::uint64_t now_ms) {
    Command command = start(verb, body);
    const nb::list effects = run(self, command, now_ms);
    const bool waits = command.waits_for_space();
    if (waits) self.refuse_waiting(command, now_ms);
    return nb::make_tuple(static_cast<int>(command.status()),
                          bindings::to_python(wire::Bytes(command.body())), effects, command.retired(),
                          waits);
}

std::pair<bool, nb::list> tick(Metadata& self, std::uint64_t now_ms) {
    Effects effects;
    const bool idle = self.tick(now_ms, effects);
    return {idle, to_python(effects)};
}

nb::object copy_order(const Metadata& self, std::uint64_t target) {
    const auto order = self.copy_order(target);
    if (!order) return nb::none();
    nb::dict dict;
    dict["target"] = order->target;
    dict["segment"] = order->segment;
    dict["source"] = order->source;
    dict["digest"] = order->digest;
    dict["put_id"] = order->put_id;
    dict["size"] = order->size;
    dict["timeout_ms"] = order->timeout_ms;
    dict["endpoints"] = order->endpoints;
    return dict;
}

nb::dict stats(const Metadata& self) {
    nb::dict dict;
    for (const auto& [name, value] : self.stats()) dict[name.c_str()] = value;
    return dict;
}

}  // namespace

void bind_metadata(nb::module_& module) {
    nb::class_<Command>(module, "MetadataCommand")
        .def_prop_ro("done", &Command::done)
        .def_prop_ro("status", [](const Command& self) { return static_cast<int>(self.status()); })
        .def_prop_ro("body", [](const Command& self) { return to_python(wire::Bytes(self.body())); })
        .def_prop_ro("waits_for_space", &Command::waits_for_space)
        .def_prop_ro("retired", [](const Command& self) { return self.retired(); })
        .def_prop_ro("session", &Command::session)
        .def_prop_ro("sequence", &Command::sequence);
    nb::class_<Metadata>(module, "Metadata")
        .def("__init__", &construct, "epoch"_a = 1, "master"_a = nb::bytes("0123456789abcdef", 16),
             "seed"_a = 0, "settings"_a)
        .def_static("command", &start, "verb"_a, "body"_a)
        .def(
            "step",
            [](Metadata& self, Command& command, std::uint64_t now_ms) {
                Effects effects;
                const bool paused = self.step(command, now_ms, effects);
                return std::pair(paused, to_python(effects));
            },
            "command"_a, "now_ms"_a)
        .def("run", &run, "command"_a, "now_ms"_a)
        .def("execute", &execute, "verb"_a, "body"_a, "now_ms"_a)
        .def("refuse_waiting", &Metadata::refuse_waiting, "command"_a, "now_ms"_a)
        .def("session_attached", &Metadata::session_attached, "session"_a, "now_ms"_a)
        .def("session_detached", &Metadata::session_detached, "session"_a, "now_ms"_a)
        .def(
            "retire_confirmed",
            [](Metadata& self, wire::SessionId node, std::uint64_t command_id, const Ids& replicas,
               bool is_last) { self.retire_confirmed(node, command_id, replicas, is_last); },
            "node"_a, "command_id"_a, "replicas"_a, "is_last"_a = true)
        .def(
            "freed",
            [](Metadata& self, const Ids& replicas) {
                Effects effects;
                self.freed(replicas, effects);
                return to_python(effects);
            },
            "replicas"_a)
        .def("copy_order", &copy_order, "target"_a)
        .def("copies_to", &Metadata::copies_to, "node"_a)
        .def(
            "copy_answered",
            [](Metadata& self, std::uint64_t node, std::uint64_t target, int status, std::uint64_t now_ms) {
                Effects effects;
                self.copy_answered(node, target, static_cast<wire::Status>(status), now_ms, effects);
                return to_python(effects);
            },
            "node"_a, "target"_a, "status"_a, "now_ms"_a)
        .def(
            "probed",
            [](Metadata& self, wire::SessionId node, const std::string& result, std::uint64_t now_ms) {
                Effects effects;
                self.probed(node, result_of(result), now_ms, effects);
                return to_python(effects);
            },
            "node"_a, "result"_a, "now_ms"_a)
        .def("endpoint", &Metadata::endpoint, "segment"_a)
        .def("tick", &tick, "now_ms"_a)
        .def(
            "hear_of_reign",
            [](Metadata& self, std::uint64_t epoch, const nb::bytes& master, std::uint64_t now_ms) {
                self.hear_of_reign(epoch, to_uuid(master), now_ms);
                return self.deposed_by();
            },
            "epoch"_a, "master"_a, "now_ms"_a)
        .def_prop_ro("epoch", &Metadata::epoch)
        .def_prop_ro("master", [](const Metadata& self) { return from_uuid(self.master()); })
        .def_prop_ro("settled_id", &Metadata::settled_id)
        .def_prop_ro("tombstones_generation", &Metadata::tombstones_generation)
        .def_prop_ro("tombstones",
                     [](const Metadata& self) { return bindings::to_python(wire::Bytes(self.tombstones())); })
        .def(
            "restore_tombstones",
            [](Metadata& self, const nb::bytes& kept) { return self.restore_tombstones(view(kept)); },
            "kept"_a)
        .def("stats", &stats)
        .def("check_invariants", &Metadata::check_invariants);
}

}  // namespace mooncake::bindings
