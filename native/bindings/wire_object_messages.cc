// Packing and unpacking of the object verbs' bodies for Python; the rest is in wire_messages.cc.
#include "bindings/bindings.h"
#include "bindings/wire_convert.h"

using namespace nanobind::literals;

namespace mooncake::bindings {

namespace {

using PlaceTuples = std::vector<std::pair<wire::ReplicaId, wire::SegmentId>>;
using LookupTuple = std::tuple<int, wire::PutId, std::uint64_t, std::uint32_t, PlaceTuples>;
using GrantTuple = std::tuple<int, wire::PutId, PlaceTuples>;
using ResultTuples = std::vector<std::pair<wire::ReplicaId, int>>;
using PutEndTuple = std::pair<wire::PutId, ResultTuples>;

nb::list to_python(const wire::KeyList& keys) {
    nb::list list;
    for (wire::KeyList::Cursor cursor(keys); !cursor.done();) {
        list.append(bindings::to_python(cursor.next()));
    }
    return list;
}

nb::bytes encode_keys_request(std::uint64_t session, const std::vector<nb::bytes>& keys,
                              std::uint64_t sequence, std::uint32_t flags, const Ids& avoid) {
    return written([&](wire::Writer& writer) {
        wire::encode_keys_request({session, sequence, flags, 0},
                                  checked_ids("avoided segments", avoid, wire::kAvoidMax), to_keys(keys),
                                  writer);
    });
}

nb::dict parse_keys_request(const nb::bytes& body) {
    const auto message = parsed(wire::parse_keys_request(view(body)), "a request with keys");
    nb::dict dict = request_dict(message.request);
    dict["keys"] = to_python(message.keys);
    return dict;
}

nb::bytes encode_statuses(const std::vector<int>& numbers) {
    std::vector<wire::Status> statuses;
    for (const int one : numbers) statuses.push_back(to_status(one));
    return written([&](wire::Writer& writer) { wire::encode_statuses(statuses, writer); });
}

std::vector<int> parse_statuses(const nb::bytes& body) {
    std::vector<int> numbers;
    for (const auto status : parsed(wire::parse_statuses(view(body)), "statuses")) {
        numbers.push_back(number(status));
    }
    return numbers;
}

nb::bytes encode_why_reply(const std::vector<std::tuple<int, int, std::uint64_t>>& items) {
    std::vector<wire::WhyRecord> records;
    for (const auto& [status, reason, ended_ms_ago] : items) {
        records.push_back({to_status(status), static_cast<wire::Absence>(reason), 0, 0, ended_ms_ago});
    }
    return written([&](wire::Writer& writer) { wire::encode_why_reply(records, writer); });
}

nb::list parse_why_reply(const nb::bytes& body) {
    nb::list items;
    for (const auto& record : parsed(wire::parse_why_reply(view(body)), "why's answer")) {
        items.append(
            nb::make_tuple(number(record.status), static_cast<int>(record.reason), record.ended_ms_ago));
    }
    return items;
}

nb::bytes encode_match_prefix_reply(std::uint32_t length, int miss) {
    return written(
        [&](wire::Writer& writer) { writer.put(wire::MatchPrefixReply{length, to_status(miss), 0}); });
}

std::pair<std::uint32_t, int> parse_match_prefix_reply(const nb::bytes& body) {
    wire::Reader reader(view(body));
    const auto reply = reader.get<wire::MatchPrefixReply>();
    if (!reader.finished()) throw nb::value_error("malformed body of match_prefix's answer");
    return {reply.length, number(reply.miss)};
}

// Records, then the places of all: the shape of lookup's and put_start's answers. `places_of` gives an
// item's places, `record_of` its record.
template <class Item, class RecordOf>
nb::bytes encode_places(const std::vector<Item>& items, RecordOf&& record_of) {
    check_bound("records", items.size(), wire::kBatchKeysMax);
    return written([&](wire::Writer& writer) {
        writer.put(static_cast<std::uint32_t>(items.size()));
        writer.put(std::uint32_t{0});
        for (const auto& item : items) {
            const auto& places = std::get<PlaceTuples>(item);
            check_bound("places", places.size(), wire::kReplicasMax);
            writer.put(record_of(item, static_cast<std::uint8_t>(places.size())));
        }
        for (const auto& item : items) {
            for (const auto& [replica, segment] : std::get<PlaceTuples>(item)) {
                writer.put(wire::ReplicaPlace{replica, segment});
            }
        }
    });
}

template <class Record>
PlaceTuples places_of(const wire::Places<Record>& reply, std::size_t count, std::size_t& position) {
    PlaceTuples places;
    for (std::size_t i = 0; i < count; ++i) {
        const auto place = reply.place(position++);
        places.emplace_back(place.replica, place.segment);
    }
    return places;
}

nb::bytes encode_lookup_reply(const std::vector<LookupTuple>& items) {
    return encode_places(items, [](const LookupTuple& item, std::uint8_t count) {
        return wire::LookupRecord{
            to_status(std::get<0>(item)), count, 0, std::get<3>(item), std::get<1>(item), std::get<2>(item)};
    });
}

std::vector<LookupTuple> parse_lookup_reply(const nb::bytes& body) {
    const auto reply = parsed(wire::Places<wire::LookupRecord>::parse(view(body)), "lookup's answer");
    std::vector<LookupTuple> items;
    std::size_t position = 0;
    for (std::size_t i = 0; i < reply.count; ++i) {
        const auto record = reply.record(i);
        items.emplace_back(number(record.status), record.put_id, record.size, record.lease_ms,
                           places_of(reply, record.replica_count, position));
    }
    return items;
}

nb::bytes encode_put_start_reply(const std::vector<GrantTuple>& items) {
    return encode_places(items, [](const GrantTuple& item, std::uint8_t count) {
        return wire::GrantRecord{to_status(std::get<0>(item)), count, 0, 0, std::get<1>(item)};
    });
}

std::vector<GrantTuple> parse_put_start_reply(const nb::bytes& body) {
    const auto reply = parsed(wire::Places<wire::GrantRecord>::parse(view(body)), "put_start's answer");
    std::vector<GrantTuple> items;
    std::size_t position = 0;
    for (std::size_t i = 0; i < reply.count; ++i) {
        const auto record = reply.record(i);
        items.emplace_back(number(record.status), record.put_id,
                           places_of(reply, record.replica_count, position));
    }
    return items;
}

nb::bytes encode_put_start(std::uint64_t session, std::uint64_t sequence, const std::vector<nb::bytes>& keys,
                           const Ids& sizes, const Ids& parents, unsigned replica_count, unsigned flags,
                           const std::vector<std::string>& preferred, std::uint32_t soft_pin_ms,
                           std::uint64_t ttl_ms, const Ids& avoid, std::uint32_t request_flags) {
    if (sizes.size() != keys.size() || (!parents.empty() && parents.size() != keys.size())) {
        throw nb::value_error("put_start takes one size, and one parent digest or none at all, a key");
    }
    check_bound("replica_count", replica_count, 255);
    check_bound("flags", flags, 255);
    check_bound("preferred segments", preferred.size(), wire::kPreferredMax);
    std::vector<std::string_view> names;
    for (const auto& name : preferred) names.push_back(checked_name("preferred segment", name));
    const Ids no_parents(parents.empty() ? keys.size() : 0);
    wire::PutOptions options;
    options.replica_count = static_cast<std::uint8_t>(replica_count);
    options.flags = static_cast<std::uint8_t>(flags);
    options.soft_pin_ms = soft_pin_ms;
    options.ttl_ms = ttl_ms;
    return written([&](wire::Writer& writer) {
        wire::encode_put_start({session, sequence, request_flags, 0},
                               checked_ids("avoided segments", avoid, wire::kAvoidMax), options, names,
                               to_keys(keys), sizes, parents.empty() ? no_parents : parents, writer);
    });
}

nb::dict parse_put_start(const nb::bytes& body) {
    const auto message = parsed(wire::parse_put_start(view(body)), "put_start");
    nb::list sizes;
    nb::list parents;
    for (std::size_t i = 0; i < message.keys.count(); ++i) {
        sizes.append(message.size(i));
        parents.append(message.parent(i));
    }
    nb::list preferred;
    for (const auto name : message.preferred) preferred.append(text(name));
    nb::dict dict = request_dict(message.request);
    dict["keys"] = to_python(message.keys);
    dict["sizes"] = sizes;
    dict["parents"] = parents;
    dict["replica_count"] = message.options.replica_count;
    dict["put_flags"] = message.options.flags;
    dict["preferred"] = preferred;
    dict["soft_pin_ms"] = message.options.soft_pin_ms;
    dict["ttl_ms"] = message.options.ttl_ms;
    return dict;
}

nb::bytes encode_put_end(std::uint64_t session, std::uint64_t sequence,
                         const std::vector<PutEndTuple>& items) {
    check_bound("items", items.size(), wire::kBatchKeysMax);
    std::vector<wire::PutEndItem> records;
    std::vector<wire::ReplicaResult> results;
    for (const auto& [put_id, outcomes] : items) {
        check_bound("results of a put", outcomes.size(), wire::kReplicasMax);
        records.push_back({put_id, static_cast<std::uint32_t>(outcomes.size()), 0});
        for (const auto& [replica, status] : outcomes) results.push_back({replica, to_status(status), 0, 0});
    }
    return written([&](wire::Writer& writer) {
        wire::encode_put_end({session, sequence, 0, 0}, records, results, writer);
    });
}

nb::dict parse_put_end(const nb::bytes& body) {
    const auto message = parsed(wire::parse_put_end(view(body)), "put_end");
    std::vector<PutEndTuple> items;
    std::size_t position = 0;
    for (const auto& item : message.items) {
        ResultTuples outcomes;
        for (std::uint32_t i = 0; i < item.result_count; ++i) {
            const auto& result = message.results[position++];
            outcomes.emplace_back(result.replica, number(result.status));
        }
        items.emplace_back(item.put_id, std::move(outcomes));
    }
    nb::dict dict = request_dict(message.request);
    dict["items"] = items;
    return dict;
}

nb::bytes encode_put_revoke(std::uint64_t session, std::uint64_t sequence, const Ids& put_ids) {
    return written([&](wire::Writer& writer) {
        wire::encode_put_revoke({session, sequence, 0, 0},
                                checked_ids("put_ids", put_ids, wire::kBatchKeysMax), writer);
    });
}

nb::dict parse_put_revoke(const nb::bytes& body) {
    const auto message = parsed(wire::parse_put_revoke(view(body)), "put_revoke");
    nb::dict dict = request_dict(message.request);
    dict["put_ids"] = message.put_ids;
    return dict;
}

nb::bytes encode_list(std::uint64_t session, std::uint64_t cursor, std::uint32_t limit,
                      const nb::bytes& key_prefix) {
    const auto prefix = checked_name("key prefix", wire::as_text(view(key_prefix)), wire::kKeyBytesMax);
    return written(
        [&](wire::Writer& writer) { wire::encode_list({session, 0, 0, 0}, cursor, limit, prefix, writer); });
}

nb::dict parse_list(const nb::bytes& body) {
    const auto message = parsed(wire::parse_list(view(body)), "list");
    nb::dict dict = request_dict(message.request);
    dict["cursor"] = message.cursor;
    dict["limit"] = message.limit;
    dict["key_prefix"] = bindings::to_python(message.key_prefix);
    return dict;
}

using ListTuple = std::tuple<nb::bytes, std::uint64_t, wire::PutId, unsigned, unsigned>;

nb::bytes encode_list_reply(std::uint64_t cursor, const std::vector<ListTuple>& objects) {
    check_bound("objects", objects.size(), wire::kBatchKeysMax);
    std::vector<wire::ListedObject> records;
    for (const auto& [key, size, put_id, replicas, flags] : objects) {
        records.push_back({checked_name("key", wire::as_text(view(key)), wire::kKeyBytesMax), size, put_id,
                           static_cast<std::uint8_t>(replicas), static_cast<std::uint8_t>(flags)});
    }
    return written([&](wire::Writer& writer) { wire::encode_list_reply(cursor, records, writer); });
}

std::pair<std::uint64_t, std::vector<ListTuple>> parse_list_reply(const nb::bytes& body) {
    const auto reply = parsed(wire::parse_list_reply(view(body)), "list's answer");
    std::vector<ListTuple> objects;
    for (const auto& object : reply.objects) {
        objects.emplace_back(bindings::to_python(object.key), object.size, object.put_id,
                             object.replica_count, object.flags);
    }
    return {reply.cursor, std::move(objects)};
}

nb::bytes encode_stats_reply(const nb::dict& stats) {
    std::vector<std::pair<std::string, std::uint64_t>> owned;
    for (const auto [name, value] : stats) {
        owned.emplace_back(nb::cast<std::string>(name), nb::cast<std::uint64_t>(value));
    }
    std::vector<wire::Stat> records;
    for (const auto& [name, value] : owned) records.push_back({checked_name("name", name), value});
    return written([&](wire::Writer& writer) { wire::encode_stats(records, writer); });
}

nb::dict parse_stats_reply(const nb::bytes& body) {
    nb::dict dict;
    for (const auto& stat : parsed(wire::parse_stats(view(body)), "stats' answer")) {
        dict[text(stat.name)] = stat.value;
    }
    return dict;
}

}  // namespace

void bind_wire_object_messages(nb::module_& module) {
    module.def("encode_keys_request", &encode_keys_request, "session"_a, "keys"_a, "sequence"_a = 0,
               "flags"_a = 0, "avoid"_a = Ids{});
    module.def("parse_keys_request", &parse_keys_request, "body"_a);
    module.def("encode_statuses", &encode_statuses, "statuses"_a);
    module.def("parse_statuses", &parse_statuses, "body"_a);
    module.def("encode_why_reply", &encode_why_reply, "items"_a);
    module.def("parse_why_reply", &parse_why_reply, "body"_a);
    module.def("encode_match_prefix_reply", &encode_match_prefix_reply, "length"_a, "miss"_a);
    module.def("parse_match_prefix_reply", &parse_match_prefix_reply, "body"_a);
    module.def("encode_lookup_reply", &encode_lookup_reply, "items"_a);
    module.def("parse_lookup_reply", &parse_lookup_reply, "body"_a);
    module.def("encode_put_start", &encode_put_start, "session"_a, "sequence"_a, "keys"_a, "sizes"_a,
               "parents"_a = Ids{}, "replica_count"_a = 1, "flags"_a = 0,
               "preferred"_a = std::vector<std::string>{}, "soft_pin_ms"_a = 0, "ttl_ms"_a = 0,
               "avoid"_a = Ids{}, "request_flags"_a = 0);
    module.def("parse_put_start", &parse_put_start, "body"_a);
    module.def("encode_put_start_reply", &encode_put_start_reply, "items"_a);
    module.def("parse_put_start_reply", &parse_put_start_reply, "body"_a);
    module.def("encode_put_end", &encode_put_end, "session"_a, "sequence"_a, "items"_a);
    module.def("parse_put_end", &parse_put_end, "body"_a);
    module.def("encode_put_revoke", &encode_put_revoke, "session"_a, "sequence"_a, "put_ids"_a);
    module.def("parse_put_revoke", &parse_put_revoke, "body"_a);
    module.def("encode_list", &encode_list, "session"_a, "cursor"_a = 0, "limit"_a = 0,
               "key_prefix"_a = nb::bytes("", 0));
    module.def("parse_list", &parse_list, "body"_a);
    module.def("encode_list_reply", &encode_list_reply, "cursor"_a, "objects"_a);
    module.def("parse_list_reply", &parse_list_reply, "body"_a);
    module.def("encode_stats_reply", &encode_stats_reply, "stats"_a);
    module.def("parse_stats_reply", &parse_stats_reply, "body"_a);
}

}  // namespace mooncake::bindings
