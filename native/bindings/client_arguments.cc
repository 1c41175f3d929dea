#include "bindings/client_arguments.h"

#include <charconv>

#include "wire/limits.h"

namespace mooncake::bindings {

namespace {

std::string kind_of(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

std::string at(const char* what, std::size_t index) {
    return std::string(what) + "[" + std::to_string(index) + "]";
}

[[noreturn]] void raise_type(const std::string& text) { throw nb::type_error(text.c_str()); }
[[noreturn]] void raise_value(const std::string& text) { throw nb::value_error(text.c_str()); }

// What Python said, with the argument's name before it.
[[noreturn]] void raise_buffer(const std::string& where, nb::handle object) {
    nb::python_error cause;
    raise_type(where + " (" + kind_of(object) + ") does not give its bytes: " + cause.what());
}

}  // namespace

void check_count(const char* what, std::size_t count, std::size_t keys) {
    if (count == keys) return;
    raise_value(std::to_string(keys) + " keys but " + std::to_string(count) + " " + what);
}

FastSequence::FastSequence(nb::handle sequence, const char* what) {
    if (PyUnicode_Check(sequence.ptr()) || PyBytes_Check(sequence.ptr())) {
        raise_type(std::string(what) + " must be a list, not one " + kind_of(sequence));
    }
    items_ = nb::steal(PySequence_Fast(sequence.ptr(), ""));
    if (!items_.is_valid()) {
        PyErr_Clear();
        raise_type(std::string(what) + " must be a list, not " + kind_of(sequence));
    }
}

PackedKeys::PackedKeys(nb::handle keys) {
    const FastSequence sequence(keys, "keys");
    const auto count = sequence.size();
    ends_.reserve(count);
    bytes_.reserve(count * 40);
    for (std::size_t i = 0; i < count; ++i) append(sequence[i], i);
    views_.reserve(count);
    std::size_t start = 0;
    for (const auto end : ends_) {
        views_.push_back(std::string_view(bytes_).substr(start, end - start));
        start = end;
    }
}

void PackedKeys::append(nb::handle key, std::size_t index) {
    PyObject* object = key.ptr();
    if (PyUnicode_Check(object)) {
        Py_ssize_t size = 0;
        const char* text = PyUnicode_AsUTF8AndSize(object, &size);
        if (text == nullptr) {
            PyErr_Clear();
            raise_value(at("keys", index) + " has no UTF-8 form (a lone surrogate)");
        }
        bytes_.append(text, static_cast<std::size_t>(size));
    } else if (PyBytes_Check(object)) {
        bytes_.append(PyBytes_AS_STRING(object), static_cast<std::size_t>(PyBytes_GET_SIZE(object)));
    } else if (PyLong_Check(object) && !PyBool_Check(object)) {
        int overflow = 0;
        const auto number = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (number < 0 && overflow == 0) {
            raise_value(at("keys", index) + " is " + std::to_string(number) + "; an int key is >= 0");
        }
        if (overflow < 0) raise_value(at("keys", index) + " is negative; an int key is >= 0");
        if (overflow == 0) {
            char digits[24];
            const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
            bytes_.append(digits, end);
        } else {
            // Python refuses to print ints of more than 4,300 digits: no key either, so an empty one stands
            // for it.
            const auto text = nb::steal(PyNumber_ToBase(object, 10));
            Py_ssize_t size = 0;
            const char* digits = text.is_valid() ? PyUnicode_AsUTF8AndSize(text.ptr(), &size) : nullptr;
            if (digits == nullptr) PyErr_Clear();
            bytes_.append(digits == nullptr ? "" : digits, static_cast<std::size_t>(size));
        }
    } else {
        raise_type(at("keys", index) + " must be str, bytes or int, not " + kind_of(key));
    }
    ends_.push_back(bytes_.size());
}

HeldBuffers::~HeldBuffers() {
    for (auto& buffer : held_) PyBuffer_Release(&buffer);
}

iovec HeldBuffers::add(nb::handle object, bool writable, const char* what, std::size_t index) {
    if (PyTuple_Check(object.ptr())) {
        if (PyTuple_GET_SIZE(object.ptr()) != 2) raise_value(at(what, index) + " must be (address, length)");
        void* address = PyLong_AsVoidPtr(PyTuple_GET_ITEM(object.ptr(), 0));
        const auto length = PyLong_AsSsize_t(PyTuple_GET_ITEM(object.ptr(), 1));
        if (PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            raise_type(at(what, index) + " must be (address, length), two ints");
        }
        if (length < 0)
            raise_value(at(what, index) + " has length " + std::to_string(length) + "; it must be >= 0");
        if (address == nullptr && length > 0) raise_value(at(what, index) + " has address 0");
        return {address, static_cast<std::size_t>(length)};
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(object.ptr(), &buffer, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
        raise_buffer(at(what, index), object);
    }
    held_.push_back(buffer);
    return {buffer.buf, static_cast<std::size_t>(buffer.len)};
}

PutValues::PutValues(nb::handle values) {
    const FastSequence sequence(values, "values");
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < sequence.size(); ++i) {
        const auto value = sequence[i];
        if (PyList_Check(value.ptr())) {
            const FastSequence parts(value, "values");
            for (std::size_t j = 0; j < parts.size(); ++j) {
                pieces_.push_back(buffers_.add(parts[j], false, "values", i));
            }
        } else {
            pieces_.push_back(buffers_.add(value, false, "values", i));
        }
        ends.push_back(pieces_.size());
    }
    std::size_t start = 0;
    for (const auto end : ends) {
        client::Value value{pieces_.data() + start, end - start, 0};
        for (; start < end; ++start) value.size += pieces_[start].iov_len;
        values_.push_back(value);
    }
}

GetTargets::GetTargets(nb::handle targets) {
    const FastSequence sequence(targets, "targets");
    // An empty target has an address all the same: without one the key would count as not wanted.
    static std::uint8_t nowhere;
    for (std::size_t i = 0; i < sequence.size(); ++i) {
        if (sequence[i].is_none()) {
            targets_.push_back({});
            continue;
        }
        const auto piece = buffers_.add(sequence[i], true, "targets", i);
        auto* data = static_cast<std::uint8_t*>(piece.iov_base);
        targets_.push_back({data != nullptr ? data : &nowhere, piece.iov_len});
    }
}

}  // namespace mooncake::bindings
