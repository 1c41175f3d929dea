// The calls of the native client as Python makes them, each once: what its arguments are, what runs without
// the GIL, and what Python gets. _core.Client makes them at once, _core.AsyncClient hands them to its
// threads.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/client_arguments.h"
#include "client/client.h"

namespace mooncake::bindings {

// One call. Made and destroyed with the GIL: it holds the caller's buffers.
class ClientCall {
  public:
    virtual ~ClientCall() = default;
    // Without the GIL, on any thread.
    virtual void run(client::Client& client, const client::CallOptions& options,
                     client::CallReport& report) = 0;
    // With the GIL, after each run: true when it must run once more.
    virtual bool has_more() { return false; }
    // With the GIL, once. owner: the Python object of the client.
    virtual nb::object answer(nb::handle owner) = 0;
};
using Call = std::unique_ptr<ClientCall>;

// Values that were found, together with the keys they look at and the client they need.
struct OpenedValues {
    nb::object owner;
    PackedKeys keys;
    std::unique_ptr<client::OpenValues> values;
    bool was_read = false;

    explicit OpenedValues(nb::handle of_keys) : keys(of_keys) {}
};

Call put_many(nb::handle keys, nb::handle values, int replica_count, int flags, std::uint32_t soft_pin_ms,
              std::uint64_t ttl_ms, std::vector<std::string> preferred,
              const std::optional<std::vector<nb::bytes>>& user_metadata,
              std::optional<std::vector<std::uint64_t>> parents);
Call get_many(nb::handle keys, bool with_user_metadata);
Call get_into_many(nb::handle keys, nb::handle targets);
Call view_many(nb::handle keys, bool verify);
Call get_ranges_many(nb::handle keys, std::vector<std::uint64_t> offsets, nb::handle targets);
Call open(nb::handle keys, bool user_metadata, bool to_read);
Call read_into(nb::handle opened, nb::handle targets);
Call exists_many(nb::handle keys, bool hold);
Call locate_many(nb::handle keys);
Call match_prefix(nb::handle keys, bool hold);
Call remove_copies(nb::handle keys, std::vector<wire::SegmentId> segments);
Call remove_many(nb::handle keys, bool force);
Call touch_many(nb::handle keys);
Call list_keys(std::uint64_t cursor, std::uint32_t limit, const nb::bytes& key_prefix);
Call explain(const nb::bytes& key);
Call inspect(int subject, const nb::bytes& name, std::uint32_t limit);
Call create_task(int type, const nb::bytes& key, std::string source, std::vector<std::string> targets);
Call query_task(std::uint64_t task);
Call segments();
Call stats();

nb::list status_list(std::span<const client::GetResult> results);
nb::list local_node_list(std::span<const client::LocalPeer> peers);
nb::list size_list(std::span<const client::GetResult> results);
nb::list put_id_list(std::span<const client::GetResult> results);
nb::list user_metadata_list(const client::OpenValues& values);

// What the latest call of this thread, or the latest one answered to it, says went wrong.
std::string& last_why();

// Defines every call as a method of `bound`; ask(self, call, timeout_ms) makes it and gives the method's
// value. more: of nanobind's annotations, for every method.
template <class Bound, class Ask, class... More>
void define_calls(Bound& bound, Ask ask, const More&... more) {
    using namespace nanobind::literals;
    using Self = typename Bound::Type;
    bound
        .def(
            "put_many",
            [ask](Self& self, nb::handle keys, nb::handle values, int replica_count, int flags,
                  std::uint32_t soft_pin_ms, std::uint64_t ttl_ms, std::vector<std::string> preferred,
                  const std::optional<std::vector<nb::bytes>>& user_metadata,
                  std::optional<std::vector<std::uint64_t>> parents, std::uint64_t timeout_ms) {
                return ask(self,
                           put_many(keys, values, replica_count, flags, soft_pin_ms, ttl_ms,
                                    std::move(preferred), user_metadata, std::move(parents)),
                           timeout_ms);
            },
            "keys"_a, "values"_a, nb::kw_only(), "replica_count"_a = 1, "flags"_a = 0, "soft_pin_ms"_a = 0,
            "ttl_ms"_a = 0, "preferred"_a = std::vector<std::string>{}, "user_metadata"_a = nb::none(),
            "parents"_a = nb::none(), "timeout_ms"_a = 0, more...)
        .def(
            "get_many",
            [ask](Self& self, nb::handle keys, bool with_user_metadata, std::uint64_t timeout_ms) {
                return ask(self, get_many(keys, with_user_metadata), timeout_ms);
            },
            "keys"_a, nb::kw_only(), "with_user_metadata"_a = false, "timeout_ms"_a = 0, more...)
        .def(
            "get_into_many",
            [ask](Self& self, nb::handle keys, nb::handle targets, std::uint64_t timeout_ms) {
                return ask(self, get_into_many(keys, targets), timeout_ms);
            },
            "keys"_a, "targets"_a, nb::kw_only(), "timeout_ms"_a = 0, more...)
        .def(
            "view_many",
            [ask](Self& self, nb::handle keys, bool verify, std::uint64_t timeout_ms) {
                return ask(self, view_many(keys, verify), timeout_ms);
            },
            "keys"_a, nb::kw_only(), "verify"_a = false, "timeout_ms"_a = 0, more...)
        .def(
            "get_ranges_many",
            [ask](Self& self, nb::handle keys, std::vector<std::uint64_t> offsets, nb::handle targets,
                  std::uint64_t timeout_ms) {
                return ask(self, get_ranges_many(keys, std::move(offsets), targets), timeout_ms);
            },
            "keys"_a, "offsets"_a, "targets"_a, nb::kw_only(), "timeout_ms"_a = 0, more...)
        .def(
            "open",
            [ask](Self& self, nb::handle keys, bool user_metadata, bool to_read, std::uint64_t timeout_ms) {
                return ask(self, open(keys, user_metadata, to_read), timeout_ms);
            },
            "keys"_a, nb::kw_only(), "user_metadata"_a = false, "to_read"_a = true, "timeout_ms"_a = 0,
            more...)
        .def(
            "read_into",
            [ask](Self& self, nb::handle opened, nb::handle targets, std::uint64_t timeout_ms) {
                return ask(self, read_into(opened, targets), timeout_ms);
            },
            "opened"_a, "targets"_a, nb::kw_only(), "timeout_ms"_a = 0, more...)
        .def(
            "exists_many",
            [ask](Self& self, nb::handle keys, bool hold, std::uint64_t timeout_ms) {
                return ask(self, exists_many(keys, hold), timeout_ms);
            },
            "keys"_a, nb::kw_only(), "hold"_a = true, "timeout_ms"_a = 0, more...)
        .def(
            "locate_many",
            [ask](Self& self, nb::handle keys, std::uint64_t timeout_ms) {
                return ask(self, locate_many(keys), timeout_ms);
            },
            "keys"_a, nb::kw_only(), "timeout_ms"_a = 0, more...)
        .def(
            "match_prefix",
            [ask](Self& self, nb::handle keys, bool hold, std::uint64_t timeout_ms) {
                return ask(self, match_prefix(keys, hold), timeout_ms);
            },
            "keys"_a, nb::kw_only(), "hold"_a = true, "timeout_ms"_a = 0, more...)
        .def(
            "remove_many",
            [ask](Self& self, nb::handle keys, bool force, std::uint64_t timeout_ms) {
                return ask(self, remove_many(keys, force), timeout_ms);
            },
            "keys"_a, nb::kw_only(), "force"_a = false, "timeout_ms"_a = 0, more...)
        .def(
            "remove_copies",
            [ask](Self& self, nb::handle keys, std::vector<wire::SegmentId> segments,
                  std::uint64_t timeout_ms) {
                return ask(self, remove_copies(keys, std::move(segments)), timeout_ms);
            },
            "keys"_a, "segments"_a, nb::kw_only(), "timeout_ms"_a = 0, more...)
        .def(
            "touch_many",
            [ask](Self& self, nb::handle keys, std::uint64_t timeout_ms) {
                return ask(self, touch_many(keys), timeout_ms);
            },
            "keys"_a, nb::kw_only(), "timeout_ms"_a = 0, more...)
        .def(
            "list_keys",
            [ask](Self& self, std::uint64_t cursor, std::uint32_t limit, const nb::bytes& key_prefix,
                  std::uint64_t timeout_ms) {
                return ask(self, list_keys(cursor, limit, key_prefix), timeout_ms);
            },
            "cursor"_a = 0, nb::kw_only(), "limit"_a = 1000, "key_prefix"_a = nb::bytes("", 0),
            "timeout_ms"_a = 0, more...)
        .def(
            "explain",
            [ask](Self& self, const nb::bytes& key, std::uint64_t timeout_ms) {
                return ask(self, explain(key), timeout_ms);
            },
            "key"_a, nb::kw_only(), "timeout_ms"_a = 0, more...)
        .def(
            "inspect",
            [ask](Self& self, int subject, const nb::bytes& name, std::uint32_t limit,
                  std::uint64_t timeout_ms) { return ask(self, inspect(subject, name, limit), timeout_ms); },
            "subject"_a, "name"_a = nb::bytes("", 0), nb::kw_only(), "limit"_a = 0, "timeout_ms"_a = 0,
            more...)
        .def(
            "create_task",
            [ask](Self& self, int type, const nb::bytes& key, std::vector<std::string> targets,
                  std::string source, std::uint64_t timeout_ms) {
                return ask(self, create_task(type, key, std::move(source), std::move(targets)), timeout_ms);
            },
            "type"_a, "key"_a, "targets"_a, nb::kw_only(), "source"_a = std::string{}, "timeout_ms"_a = 0,
            more...)
        .def(
            "query_task",
            [ask](Self& self, std::uint64_t task, std::uint64_t timeout_ms) {
                return ask(self, query_task(task), timeout_ms);
            },
            "task"_a, nb::kw_only(), "timeout_ms"_a = 0, more...)
        .def(
            "segments",
            [ask](Self& self, std::uint64_t timeout_ms) { return ask(self, segments(), timeout_ms); },
            nb::kw_only(), "timeout_ms"_a = 0, more...)
        .def(
            "stats", [ask](Self& self, std::uint64_t timeout_ms) { return ask(self, stats(), timeout_ms); },
            nb::kw_only(), "timeout_ms"_a = 0, more...);
}

}  // namespace mooncake::bindings
