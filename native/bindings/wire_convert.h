// Conversions between Python objects and wire types that the wire bindings share: checked on the way in
// (ValueError names the value), lenient about bad UTF-8 on the way out, because names come from the network.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/bytes.h"
#include "wire/ids.h"
#include "wire/key_list.h"
#include "wire/lane.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace mooncake::bindings {

namespace nb = nanobind;

using Ids = std::vector<std::uint64_t>;

inline wire::Bytes view(const nb::bytes& bytes) {
    return {static_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}
inline nb::bytes to_python(wire::Bytes bytes) { return nb::bytes(bytes.data(), bytes.size()); }
inline nb::bytes to_python(std::string_view bytes) { return nb::bytes(bytes.data(), bytes.size()); }

// A name for people: bytes that are not UTF-8 become U+FFFD.
inline nb::object text(std::string_view bytes) {
    return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

inline wire::Uuid to_uuid(const nb::bytes& bytes) {
    wire::Uuid uuid;
    if (bytes.size() != uuid.size()) {
        throw nb::value_error(("a uuid has 16 bytes, this has " + std::to_string(bytes.size())).c_str());
    }
    std::memcpy(uuid.data(), bytes.data(), uuid.size());
    return uuid;
}
inline nb::bytes from_uuid(const wire::Uuid& uuid) { return nb::bytes(uuid.data(), uuid.size()); }

inline void check_bound(const char* what, std::size_t value, std::size_t max) {
    if (value <= max) return;
    throw nb::value_error(
        (std::string(what) + ": " + std::to_string(value) + " is above " + std::to_string(max)).c_str());
}

inline std::string_view checked_name(const char* what, std::string_view name,
                                     std::size_t max = wire::kNameBytesMax) {
    check_bound(what, name.size(), max);
    return name;
}

// Keys of a request. One that is too long is cut just above the limit, so that it alone is answered
// INVALID_KEY.
inline std::vector<std::string_view> to_keys(const std::vector<nb::bytes>& keys) {
    check_bound("keys", keys.size(), wire::kBatchKeysMax);
    std::vector<std::string_view> views;
    views.reserve(keys.size());
    for (const auto& key : keys) {
        views.push_back(wire::as_text(view(key)).substr(0, wire::kKeyBytesMax + 1));
    }
    return views;
}

inline std::span<const std::uint64_t> checked_ids(const char* what, const Ids& ids, std::size_t max) {
    check_bound(what, ids.size(), max);
    return ids;
}

inline Ids to_ids(const wire::AvoidList& list) {
    Ids ids(list.count());
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = list.at(i);
    return ids;
}

inline wire::Status to_status(int number) { return static_cast<wire::Status>(number); }
inline int number(wire::Status status) { return static_cast<int>(status); }

// Runs `encode(writer)` and gives what it wrote.
template <class Encode>
nb::bytes written(Encode&& encode) {
    wire::Buffer buffer;
    wire::Writer writer(buffer);
    encode(writer);
    return to_python(wire::Bytes(buffer));
}

template <class T>
T parsed(std::optional<T> message, const char* what) {
    if (!message) throw nb::value_error((std::string("malformed body of ") + what).c_str());
    return std::move(*message);
}

// The fields that every request shares, in the dict of a parsed one.
inline nb::dict request_dict(const wire::Request& request) {
    nb::dict dict;
    dict["session"] = request.prefix.session;
    dict["sequence"] = request.prefix.sequence;
    dict["flags"] = request.prefix.flags;
    dict["avoid"] = to_ids(request.avoid);
    return dict;
}

}  // namespace mooncake::bindings
