#include "bindings/client_calls.h"

#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <type_traits>

#include "bindings/view.h"
#include "bindings/wire_tasks.h"

namespace mooncake::bindings {

using client::CallOptions;
using client::CallReport;
using client::Client;
using client::GetResult;
using client::OpenValues;
using client::Target;

namespace {

// Values that are together no larger are read before Python has made room for them, and copied: cheaper than
// another turn with the GIL (a copy of 64 KiB takes 5 microseconds).
constexpr std::uint64_t kScratchBytesMax = 64u << 10;

nb::list to_list(std::span<const wire::Status> statuses) {
    auto list = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(statuses.size())));
    for (std::size_t i = 0; i < statuses.size(); ++i) {
        PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i),
                        PyLong_FromLong(static_cast<long>(statuses[i])));
    }
    return list;
}

template <class Get>
nb::list to_list(std::span<const GetResult> results, Get get) {
    auto list = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(results.size())));
    for (std::size_t i = 0; i < results.size(); ++i) {
        PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), get(results[i]));
    }
    return list;
}

nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }
nb::object to_text(std::string_view text) {
    return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

// A call of one run: run(arguments, client, options, report) gives a result, answer(arguments, result) an
// object.
template <class Arguments, class Run, class Answer>
class OneRun final : public ClientCall {
  public:
    OneRun(std::unique_ptr<Arguments> arguments, Run run, Answer answer)
        : arguments_(std::move(arguments)), run_(run), answer_(answer) {}

    void run(Client& client, const CallOptions& options, CallReport& report) override {
        result_.emplace(run_(*arguments_, client, options, report));
    }
    nb::object answer(nb::handle) override { return answer_(*result_); }

  private:
    using Result = std::invoke_result_t<Run, Arguments&, Client&, const CallOptions&, CallReport&>;

    const std::unique_ptr<Arguments> arguments_;
    const Run run_;
    const Answer answer_;
    std::optional<Result> result_;
};

template <class Arguments, class Run, class Answer>
Call one_run(std::unique_ptr<Arguments> arguments, Run run, Answer answer) {
    return std::make_unique<OneRun<Arguments, Run, Answer>>(std::move(arguments), run, answer);
}

// A question about each of some keys that is answered by its status.
template <class Ask>
Call key_question(nb::handle keys, Ask ask) {
    return one_run(
        std::make_unique<PackedKeys>(keys),
        [ask](PackedKeys& packed, Client& client, const CallOptions& options, CallReport& report) {
            return ask(client, packed.views(), options, report);
        },
        [](const std::vector<wire::Status>& statuses) -> nb::object { return to_list(statuses); });
}

struct PutArguments {
    PackedKeys keys;
    PutValues values;
    client::PutOptions options;
    std::vector<std::string> user_metadata;
    std::vector<std::string_view> metadata_views;
    std::vector<std::uint64_t> parents;

    PutArguments(nb::handle of_keys, nb::handle of_values) : keys(of_keys), values(of_values) {}
};

class GetMany final : public ClientCall {
  public:
    GetMany(nb::handle keys, bool with_user_metadata)
        : keys_(keys),
          with_user_metadata_(with_user_metadata),
          values_(keys_.size()),
          metadata_(keys_.size()),
          left_(keys_.size()) {
        for (std::size_t i = 0; i < left_.size(); ++i) left_[i] = i;
        look_up_left();
    }

    void run(Client& client, const CallOptions& options, CallReport& report) override {
        if (left_.empty()) {
            was_read_ = true;
            return;
        }
        if (!opened_) {
            opened_ = client.open(asked_, with_user_metadata_, options, report);
            if (report.was_interrupted || !make_scratch()) return;
        }
        opened_->read_into(targets_, options, report);
        was_read_ = true;
    }

    bool has_more() override {
        if (!was_read_) {
            make_room();
            return true;
        }
        collect();
        look_up_left();
        return !left_.empty();
    }

    nb::object answer(nb::handle) override {
        nb::list values;
        for (auto& value : values_) values.append(std::move(value));
        if (!with_user_metadata_) return values;
        nb::list metadata;
        for (const auto& text : metadata_) metadata.append(to_bytes(text));
        return nb::make_tuple(values, metadata);
    }

  private:
    // With the GIL: an earlier attempt may have left room that its value did not fit into.
    void look_up_left() {
        room_.clear();
        opened_.reset();
        was_read_ = false;
        asked_.clear();
        for (const auto i : left_) asked_.push_back(keys_.views()[i]);
    }

    // Without the GIL. false: too much for it.
    bool make_scratch() {
        std::uint64_t bytes = 0;
        for (const auto& result : opened_->results()) {
            if (wire::ok(result.status)) bytes += result.length;
            if (bytes > kScratchBytesMax) return false;
        }
        scratch_.resize(std::max<std::size_t>(bytes, 1));
        targets_.assign(left_.size(), {});
        std::uint8_t* at = scratch_.data();
        for (std::size_t i = 0; i < left_.size(); ++i) {
            const auto& result = opened_->results()[i];
            if (!wire::ok(result.status)) continue;
            targets_[i] = {at, result.length};
            at += result.length;
        }
        return true;
    }

    // For every value found, a bytes object that nobody else has seen yet.
    void make_room() {
        targets_.assign(left_.size(), {});
        room_.assign(left_.size(), {});
        for (std::size_t i = 0; i < left_.size(); ++i) {
            const auto& result = opened_->results()[i];
            if (!wire::ok(result.status)) continue;
            room_[i] = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(result.length)));
            if (!room_[i].is_valid()) throw nb::python_error();
            targets_[i] = {reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(room_[i].ptr())), result.length};
        }
    }

    void collect() {
        std::vector<std::size_t> again;
        for (std::size_t i = 0; i < left_.size(); ++i) {
            const auto& result = opened_->results()[i];
            if (wire::ok(result.status)) {
                values_[left_[i]] = value_of(i, result.length);
                if (with_user_metadata_) metadata_[left_[i]] = opened_->user_metadata()[i];
            } else if (result.status == wire::Status::kBufferOverflow && attempts_ < client::kReopensMax) {
                again.push_back(left_[i]);
            } else {
                values_[left_[i]] = nb::int_(static_cast<int>(result.status));
            }
        }
        ++attempts_;
        left_ = std::move(again);
    }

    // A value replaced between lookup and read may be shorter than its room.
    nb::object value_of(std::size_t i, std::uint64_t length) {
        if (room_.empty()) return nb::bytes(targets_[i].data, length);
        if (static_cast<std::uint64_t>(PyBytes_GET_SIZE(room_[i].ptr())) == length) {
            return std::move(room_[i]);
        }
        PyObject* shorter = room_[i].release().ptr();
        if (_PyBytes_Resize(&shorter, static_cast<Py_ssize_t>(length)) != 0) throw nb::python_error();
        return nb::steal(shorter);
    }

    const PackedKeys keys_;
    const bool with_user_metadata_;
    std::vector<nb::object> values_;
    std::vector<std::string> metadata_;
    int attempts_ = 0;
    // One attempt: the keys without an answer, and where their values go.
    std::vector<std::size_t> left_;
    std::vector<std::string_view> asked_;
    std::unique_ptr<OpenValues> opened_;
    bool was_read_ = false;
    std::vector<Target> targets_;
    std::vector<std::uint8_t> scratch_;
    std::vector<nb::object> room_;
};

class Open final : public ClientCall {
  public:
    Open(nb::handle keys, bool user_metadata, bool to_read)
        : opened_(std::make_unique<OpenedValues>(keys)), user_metadata_(user_metadata), to_read_(to_read) {}

    void run(Client& client, const CallOptions& options, CallReport& report) override {
        opened_->values = client.open(opened_->keys.views(), user_metadata_, options, report, to_read_);
    }
    nb::object answer(nb::handle owner) override {
        opened_->owner = nb::borrow(owner);
        return nb::cast(std::move(opened_));
    }

  private:
    std::unique_ptr<OpenedValues> opened_;
    const bool user_metadata_;
    const bool to_read_;
};

struct ReadArguments {
    nb::object opened;
    GetTargets targets;

    ReadArguments(nb::handle of_opened, nb::handle of_targets)
        : opened(nb::borrow(of_opened)), targets(of_targets) {}
};

}  // namespace

// ---- put, get

Call put_many(nb::handle keys, nb::handle values, int replica_count, int flags, std::uint32_t soft_pin_ms,
              std::uint64_t ttl_ms, std::vector<std::string> preferred,
              const std::optional<std::vector<nb::bytes>>& user_metadata,
              std::optional<std::vector<std::uint64_t>> parents) {
    auto put = std::make_unique<PutArguments>(keys, values);
    check_count("values", put->values.values().size(), put->keys.size());
    if (user_metadata) check_count("user_metadata", user_metadata->size(), put->keys.size());
    if (parents) check_count("parents", parents->size(), put->keys.size());
    if (replica_count < 1 || replica_count > static_cast<int>(wire::kReplicasMax)) {
        throw nb::value_error(("replica_count is " + std::to_string(replica_count) + "; it must be 1 to " +
                               std::to_string(wire::kReplicasMax))
                                  .c_str());
    }
    if (user_metadata) {
        for (const auto& text : *user_metadata) put->user_metadata.emplace_back(text.c_str(), text.size());
        put->metadata_views.assign(put->user_metadata.begin(), put->user_metadata.end());
    }
    if (parents) put->parents = std::move(*parents);
    put->options = {static_cast<std::uint8_t>(replica_count), static_cast<std::uint8_t>(flags), soft_pin_ms,
                    ttl_ms, std::move(preferred)};
    return one_run(
        std::move(put),
        [](PutArguments& of, Client& client, const CallOptions& options, CallReport& report) {
            return client.put_many(of.keys.views(), of.values.values(), of.options, of.metadata_views,
                                   of.parents, options, report);
        },
        [](const std::vector<wire::Status>& statuses) -> nb::object { return to_list(statuses); });
}

Call get_many(nb::handle keys, bool with_user_metadata) {
    return std::make_unique<GetMany>(keys, with_user_metadata);
}

Call get_into_many(nb::handle keys, nb::handle targets) {
    struct Arguments {
        PackedKeys keys;
        GetTargets targets;
        Arguments(nb::handle of_keys, nb::handle of_targets) : keys(of_keys), targets(of_targets) {}
    };
    auto get = std::make_unique<Arguments>(keys, targets);
    check_count("targets", get->targets.targets().size(), get->keys.size());
    return one_run(
        std::move(get),
        [](Arguments& of, Client& client, const CallOptions& options, CallReport& report) {
            auto results = client.get_into_many(of.keys.views(), of.targets.targets(), options, report);
            of.targets.spread(results);
            return results;
        },
        [](const std::vector<GetResult>& results) -> nb::object {
            return nb::make_tuple(status_list(results), size_list(results));
        });
}

Call view_many(nb::handle keys, bool verify) {
    return one_run(
        std::make_unique<PackedKeys>(keys),
        [verify](PackedKeys& packed, Client& client, const CallOptions& options, CallReport& report) {
            return client.view_many(packed.views(), verify, options, report);
        },
        [](Client::Viewed& viewed) -> nb::object {
            nb::list list;
            for (std::size_t i = 0; i < viewed.results.size(); ++i) {
                const auto status = viewed.results[i].status;
                list.append(wire::ok(status) ? to_view(std::move(viewed.views[i]))
                                             : nb::object(nb::int_(static_cast<int>(status))));
            }
            return list;
        });
}

Call get_ranges_many(nb::handle keys, std::vector<std::uint64_t> offsets, nb::handle targets) {
    struct Arguments {
        PackedKeys keys;
        std::vector<std::uint64_t> offsets;
        GetTargets targets;
        Arguments(nb::handle of_keys, std::vector<std::uint64_t> from, nb::handle of_targets)
            : keys(of_keys), offsets(std::move(from)), targets(of_targets) {}
    };
    auto get = std::make_unique<Arguments>(keys, std::move(offsets), targets);
    check_count("offsets", get->offsets.size(), get->keys.size());
    check_count("targets", get->targets.targets().size(), get->keys.size());
    for (const auto& target : get->targets.targets()) {
        if (target.data == nullptr) throw nb::value_error("a range needs a target");
    }
    return one_run(
        std::move(get),
        [](Arguments& of, Client& client, const CallOptions& options, CallReport& report) {
            return client.get_ranges_many(of.keys.views(), of.offsets, of.targets.targets(), options, report);
        },
        [](const std::vector<GetResult>& results) -> nb::object {
            return nb::make_tuple(status_list(results), put_id_list(results));
        });
}

Call open(nb::handle keys, bool user_metadata, bool to_read) {
    return std::make_unique<Open>(keys, user_metadata, to_read);
}

Call read_into(nb::handle opened, nb::handle targets) {
    if (!nb::isinstance<OpenedValues>(opened)) throw nb::type_error("opened must be what open() gave");
    auto read = std::make_unique<ReadArguments>(opened, targets);
    auto& values = nb::cast<OpenedValues&>(opened);
    check_count("targets", read->targets.targets().size(), values.keys.size());
    if (std::exchange(values.was_read, true))
        throw nb::value_error("these values were read already; open them again");
    auto* const native = values.values.get();
    return one_run(
        std::move(read),
        [native](ReadArguments& of, Client&, const CallOptions& options, CallReport& report) {
            native->read_into(of.targets.targets(), options, report);
            return native;
        },
        [](const OpenValues* read_values) -> nb::object {
            return nb::make_tuple(status_list(read_values->results()), size_list(read_values->results()));
        });
}

// ---- the other verbs

Call exists_many(nb::handle keys, bool hold) {
    return key_question(
        keys, [hold](Client& client, Client::Keys of_keys, const CallOptions& options, CallReport& report) {
            return client.exists_many(of_keys, hold, options, report);
        });
}

Call locate_many(nb::handle keys) {
    return one_run(
        std::make_unique<PackedKeys>(keys),
        [](PackedKeys& packed, Client& client, const CallOptions& options, CallReport& report) {
            return client.locate_many(packed.views(), options, report);
        },
        [](const std::vector<client::LocateBatch::Located>& located) -> nb::object {
            nb::list answers;
            for (const auto& one : located) {
                nb::list places;
                for (const auto& place : one.places) {
                    places.append(nb::make_tuple(place.replica, place.segment));
                }
                answers.append(nb::make_tuple(static_cast<int>(one.status), one.size, places));
            }
            return answers;
        });
}

Call match_prefix(nb::handle keys, bool hold) {
    return one_run(
        std::make_unique<PackedKeys>(keys),
        [hold](PackedKeys& packed, Client& client, const CallOptions& options, CallReport& report) {
            return client.match_prefix(packed.views(), hold, options, report);
        },
        [](const client::MatchAnswer& answer) -> nb::object {
            return nb::make_tuple(static_cast<int>(answer.status), answer.length,
                                  static_cast<int>(answer.miss));
        });
}

Call remove_copies(nb::handle keys, std::vector<wire::SegmentId> segments) {
    if (segments.empty() || segments.size() > wire::kAvoidMax) {
        throw nb::value_error(
            ("segments: " + std::to_string(segments.size()) + ", not 1 to " + std::to_string(wire::kAvoidMax))
                .c_str());
    }
    return key_question(keys,
                        [segments = std::move(segments)](Client& client, Client::Keys of_keys,
                                                         const CallOptions& options, CallReport& report) {
                            return client.remove_copies(of_keys, segments, options, report);
                        });
}

Call remove_many(nb::handle keys, bool force) {
    return key_question(
        keys, [force](Client& client, Client::Keys of_keys, const CallOptions& options, CallReport& report) {
            return client.remove_many(of_keys, force, options, report);
        });
}

Call touch_many(nb::handle keys) {
    return key_question(keys, [](Client& client, Client::Keys of_keys, const CallOptions& options,
                                 CallReport& report) { return client.touch_many(of_keys, options, report); });
}

Call list_keys(std::uint64_t cursor, std::uint32_t limit, const nb::bytes& key_prefix) {
    auto prefix = std::make_unique<std::string>(key_prefix.c_str(), key_prefix.size());
    if (prefix->size() > wire::kKeyBytesMax) throw nb::value_error("key_prefix is longer than a key can be");
    return one_run(
        std::move(prefix),
        [cursor, limit](std::string& of_prefix, Client& client, const CallOptions& options,
                        CallReport& report) {
            return client.list(cursor, limit, of_prefix, options, report);
        },
        [](const client::ListAnswer& answer) -> nb::object {
            nb::list objects;
            for (const auto& object : answer.objects) {
                objects.append(nb::make_tuple(to_bytes(object.key), object.size, object.put_id,
                                              static_cast<int>(object.replica_count),
                                              static_cast<int>(object.flags)));
            }
            return nb::make_tuple(static_cast<int>(answer.status), answer.cursor, objects);
        });
}

Call explain(const nb::bytes& key) {
    auto asked = std::make_unique<std::string>(key.c_str(), key.size());
    if (!wire::is_valid_key(*asked)) throw nb::value_error("a key has 1 to 1024 bytes");
    return one_run(
        std::move(asked),
        [](std::string& of_key, Client& client, const CallOptions& options, CallReport& report) {
            return client.explain(of_key, options, report);
        },
        [](const client::ExplainAnswer& answer) -> nb::object {
            return nb::make_tuple(static_cast<int>(answer.status), static_cast<int>(answer.why.status),
                                  static_cast<int>(answer.why.reason), answer.why.ended_ms_ago);
        });
}

Call inspect(int subject, const nb::bytes& name, std::uint32_t limit) {
    struct Asked {
        wire::Subject subject;
        std::string name;
        std::uint32_t limit;
    };
    const bool is_key = subject == static_cast<int>(wire::Subject::kKey);
    if (subject < 0 || subject > static_cast<int>(wire::Subject::kName)) {
        throw nb::value_error("subject is 0 (the pool), 1 (a key) or 2 (a name)");
    }
    if (name.size() > (is_key ? wire::kKeyBytesMax : wire::kNameBytesMax) ||
        (name.size() == 0) != (subject == 0)) {
        throw nb::value_error(is_key ? "a key has 1 to 1024 bytes" : "a name has 1 to 255 bytes");
    }
    if (limit > wire::kEventsShownMax) throw nb::value_error("limit is at most 1024");
    return one_run(
        std::make_unique<Asked>(static_cast<wire::Subject>(subject), std::string(name.c_str(), name.size()),
                                limit),
        [](Asked& asked, Client& client, const CallOptions& options, CallReport& report) {
            return client.inspect(asked.subject, asked.name, asked.limit, options, report);
        },
        [](const client::InspectAnswer& answer) -> nb::object {
            return nb::make_tuple(static_cast<int>(answer.status),
                                  nb::bytes(answer.body.data(), answer.body.size()));
        });
}

Call create_task(int type, const nb::bytes& key, std::string source, std::vector<std::string> targets) {
    struct Asked {
        wire::TaskType type;
        std::string key, source;
        std::vector<std::string> targets;
    };
    auto asked =
        std::make_unique<Asked>(Asked{static_cast<wire::TaskType>(type), std::string(key.c_str(), key.size()),
                                      std::move(source), std::move(targets)});
    if (type < 0 || type > static_cast<int>(wire::TaskType::kMove)) {
        throw nb::value_error("type is 0 (a copy) or 1 (a move)");
    }
    if (!wire::is_valid_key(asked->key)) throw nb::value_error("a key has 1 to 1024 bytes");
    if (asked->targets.size() > wire::kTaskTargetsMax) throw nb::value_error("at most 8 targets");
    for (const auto& name : asked->targets) {
        if (name.size() > wire::kNameBytesMax) throw nb::value_error("a name has at most 255 bytes");
    }
    if (asked->source.size() > wire::kNameBytesMax) throw nb::value_error("a name has at most 255 bytes");
    return one_run(
        std::move(asked),
        [](Asked& of, Client& client, const CallOptions& options, CallReport& report) {
            return client.create_task(of.type, of.key, of.source, of.targets, options, report);
        },
        [](const client::TaskAnswer& answer) -> nb::object {
            return nb::make_tuple(static_cast<int>(answer.status), answer.record.task);
        });
}

Call query_task(std::uint64_t task) {
    return one_run(
        std::make_unique<std::uint64_t>(task),
        [](std::uint64_t& of, Client& client, const CallOptions& options, CallReport& report) {
            return client.query_task(of, options, report);
        },
        [](const client::TaskAnswer& answer) -> nb::object {
            nb::object told = nb::none();
            if (wire::ok(answer.status)) told = task_dict(answer.record, answer.message);
            return nb::make_tuple(static_cast<int>(answer.status), told);
        });
}

Call segments() {
    struct None {};
    return one_run(
        std::make_unique<None>(),
        [](None&, Client& client, const CallOptions& options, CallReport& report) {
            return client.segments(options, report);
        },
        [](const client::SegmentsAnswer& answer) -> nb::object {
            nb::list segments;
            for (const auto& segment : answer.segments) {
                nb::dict dict;
                dict["segment"] = segment.segment;
                dict["owner"] = segment.owner;
                dict["tier"] = static_cast<int>(segment.tier);
                dict["capacity_bytes"] = segment.capacity_bytes;
                dict["charged_bytes"] = segment.charged_bytes;
                dict["retiring_bytes"] = segment.retiring_bytes;
                dict["replica_count"] = segment.replica_count;
                dict["name"] = to_text(segment.name);
                dict["host_id"] = to_text(segment.host_id);
                nb::list endpoints;
                for (const auto& endpoint : segment.endpoints) endpoints.append(to_text(endpoint));
                dict["endpoints"] = endpoints;
                segments.append(dict);
            }
            return nb::make_tuple(static_cast<int>(answer.status), segments);
        });
}

Call stats() {
    struct None {};
    return one_run(
        std::make_unique<None>(),
        [](None&, Client& client, const CallOptions& options, CallReport& report) {
            return client.stats(options, report);
        },
        [](const client::StatsAnswer& answer) -> nb::object {
            nb::dict values;
            for (const auto& [name, value] : answer.values) values[nb::str(name.data(), name.size())] = value;
            return nb::make_tuple(static_cast<int>(answer.status), values);
        });
}

// ---- answers

nb::list status_list(std::span<const GetResult> results) {
    return to_list(results,
                   [](const auto& result) { return PyLong_FromLong(static_cast<long>(result.status)); });
}

nb::list local_node_list(std::span<const client::LocalPeer> peers) {
    nb::list list;
    for (const auto& peer : peers) {
        list.append(nb::make_tuple(peer.endpoint, peer.is_mapped, peer.mapped_bytes, peer.why));
    }
    return list;
}

nb::list size_list(std::span<const GetResult> results) {
    return to_list(results, [](const auto& result) { return PyLong_FromUnsignedLongLong(result.length); });
}

nb::list put_id_list(std::span<const GetResult> results) {
    return to_list(results, [](const auto& result) { return PyLong_FromUnsignedLongLong(result.put_id); });
}

nb::list user_metadata_list(const OpenValues& values) {
    nb::list list;
    for (const auto& text : values.user_metadata()) list.append(to_bytes(text));
    return list;
}

std::string& last_why() {
    static thread_local std::string why;
    return why;
}

}  // namespace mooncake::bindings
