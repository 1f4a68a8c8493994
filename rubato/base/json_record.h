// Records as JSON. Each type is described once, for reading and for writing:
//
//   void describe(auto& f, Is<User> auto& value) {
//     auto& [name, weight] = value;  // every member, by position: none can be forgotten
//     f("name", name);
//     f("weight", weight);
//   }
//   Json json = RecordWriter(format).write(user);
//   RecordReader(format).read(JsonValue(json, trouble), user);
//
// The descriptions belong to the file that uses them. `Format` is a class of that file, derived
// from RecordFormat. Because of it, the templates here find the functions of the file
// (argument-dependent lookup). It may also carry values that writing or reading needs. For each of
// its types, the file defines one of
//
//   describe(f, value)                   an object with these fields
//   describe_row(f, value)               a list of fixed length: f(first, second, ...)
//   names_of(format, value)              an enumeration: its table of names
//   write_json(writer, value) and        anything else
//   read_json(reader, json, value)
//
// The parameter `value` must be constrained by Is, so that no conversion comes between. Numbers,
// texts, ids, times and lists of all these need no description.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rubato/base/id.h"
#include "rubato/base/json.h"
#include "rubato/base/json_reader.h"
#include "rubato/base/time.h"
#include "rubato/base/units.h"
#include "rubato/base/wall_time.h"

namespace rubato::base {

// A value of this type; const when it is written.
template <class T, class Plain>
concept Is = std::is_same_v<std::remove_const_t<T>, Plain>;

// The settings of a format. A class that is derived from it overrides what is different there.
struct RecordFormat {
  static constexpr auto kUnknownFields = JsonFields::Unknown::refused;
  static constexpr std::size_t kLongestText = kLongestJsonText;
};

template <class T>
inline constexpr bool kIsId = false;
template <class Tag, class Rep>
inline constexpr bool kIsId<Id<Tag, Rep>> = true;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsShared = false;
template <class T>
inline constexpr bool kIsShared<std::shared_ptr<const T>> = true;
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// --- writing ---

template <class Format>
class RecordFieldsOut;
template <class Format>
class RecordRowOut;

// Makes JSON of values. The first value that cannot be written is the trouble. Numbers that are not
// finite and text that is not UTF-8 are found when the JSON is spelled.
template <class Format>
class RecordWriter {
 public:
  explicit RecordWriter(Format& format) : format_(format) {}

  [[nodiscard]] Format& format() const { return format_; }
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  void refuse(std::string why) {
    if (trouble_.empty()) trouble_ = std::move(why);
  }

  template <class T>
  [[nodiscard]] Json write(const T& value) {
    if constexpr (requires { write_json(*this, value); }) {
      return write_json(*this, value);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else if constexpr (std::is_enum_v<T>) {
      const std::string_view name = name_in(names_of(format_, value), value);
      if (name.empty()) refuse("a value without a name");
      return std::string(name);
    } else if constexpr (kIsId<T>) {
      return value.value();
    } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, WallTime>) {
      return value.time_since_epoch().count();
    } else if constexpr (std::is_same_v<T, Duration>) {
      return value.count();
    } else if constexpr (std::is_same_v<T, GpuTime>) {
      return value.gpu_micros();
    } else if constexpr (kIsVector<T>) {
      Json list = Json::array();
      for (const auto& one : value) list.push_back(write(one));
      return list;
    } else if constexpr (kIsShared<T>) {
      return write(*value);
    } else if constexpr (requires(RecordRowOut<Format> & f) { describe_row(f, value); }) {
      RecordRowOut<Format> row(*this);
      describe_row(row, value);
      return row.take();
    } else {
      RecordFieldsOut<Format> fields(*this);
      describe(fields, value);
      return fields.take();
    }
  }

 private:
  Format& format_;
  std::string trouble_;
};

// What a description is given when a value is written.
template <class Format>
class RecordFieldsOut {
 public:
  explicit RecordFieldsOut(RecordWriter<Format>& writer) : writer_(writer) {}

  // An empty optional and a null pointer are left out.
  template <class T>
  void operator()(const char* name, const T& value) {
    if constexpr (kIsOptional<T>) {
      if (value) json_[name] = writer_.write(*value);
    } else if constexpr (kIsShared<T>) {
      if (value != nullptr) json_[name] = writer_.write(value);
    } else {
      json_[name] = writer_.write(value);
    }
  }
  // Left out if it is as in every new value.
  template <class T>
  void unless_plain(const char* name, const T& value) {
    if (value != T()) (*this)(name, value);
  }
  // A pointer that must not be null.
  template <class T>
  void required(const char* name, const std::shared_ptr<const T>& value) {
    if (value == nullptr) writer_.refuse(fmt::format("the {} is missing", name));
    (*this)(name, value);
  }
  // A number that may be infinite or not a number: null.
  void finite_or_null(const char* name, double value) { json_[name] = value; }

  [[nodiscard]] Json take() { return std::move(json_); }

 private:
  RecordWriter<Format>& writer_;
  Json json_ = Json::object();
};

template <class Format>
class RecordRowOut {
 public:
  explicit RecordRowOut(RecordWriter<Format>& writer) : writer_(writer) {}

  template <class... T>
  void operator()(const T&... elements) {
    (json_.push_back(writer_.write(elements)), ...);
  }
  [[nodiscard]] Json take() { return std::move(json_); }

 private:
  RecordWriter<Format>& writer_;
  Json json_ = Json::array();
};

// --- reading ---

template <class Format>
class RecordFieldsIn;
template <class Format>
class RecordRowIn;

// Makes values of JSON. The trouble is that of the JsonValues.
template <class Format>
class RecordReader {
 public:
  explicit RecordReader(Format& format) : format_(format) {}

  [[nodiscard]] Format& format() const { return format_; }

  template <class T>
  void read(const JsonValue& json, T& value) {
    if (!json.ok()) return;
    if constexpr (requires { read_json(*this, json, value); }) {
      read_json(*this, json, value);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = json.boolean();
    } else if constexpr (std::is_integral_v<T>) {
      value = json.whole<T>();
    } else if constexpr (std::is_floating_point_v<T>) {
      value = json.number();
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = json.text(Format::kLongestText);
    } else if constexpr (std::is_enum_v<T>) {
      value = json.choice(names_of(format_, value));
    } else if constexpr (kIsId<T>) {
      value = json.id<T>();
    } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, WallTime>) {
      value = T(Duration(json.whole<std::int64_t>()));
    } else if constexpr (std::is_same_v<T, Duration>) {
      value = Duration(json.whole<std::int64_t>());
    } else if constexpr (std::is_same_v<T, GpuTime>) {
      value = GpuTime::micros(json.whole<std::int64_t>());
    } else if constexpr (kIsVector<T>) {
      value.clear();
      json.each([&](const JsonValue& one) { read(one, value.emplace_back()); });
    } else if constexpr (kIsShared<T>) {
      auto fresh = std::make_shared<std::remove_const_t<typename T::element_type>>();
      read(json, *fresh);
      value = std::move(fresh);
    } else if constexpr (requires(RecordRowIn<Format> & f) { describe_row(f, value); }) {
      RecordRowIn<Format> row(json, *this);
      describe_row(row, value);
    } else {
      read_fields(json, value);
    }
  }
  template <class T>
  [[nodiscard]] T get(const JsonValue& json) {
    T value{};
    read(json, value);
    return value;
  }
  // As described, for a read_json() that checks more.
  template <class T>
  void read_fields(const JsonValue& json, T& value) {
    RecordFieldsIn<Format> fields(json, *this);
    describe(fields, value);
  }

 private:
  Format& format_;
};

// What a description is given when a value is read.
template <class Format>
class RecordFieldsIn {
 public:
  RecordFieldsIn(const JsonValue& object, RecordReader<Format>& reader)
      : fields_(object, Format::kUnknownFields), reader_(reader) {}

  template <class T>
  void operator()(const char* name, T& value) {
    if constexpr (kIsOptional<T>) {
      if (const auto found = fields_.find(name))
        value = reader_.template get<typename T::value_type>(*found);
    } else if constexpr (kIsShared<T>) {
      unless_plain(name, value);
    } else {
      reader_.read(fields_[name], value);
    }
  }
  template <class T>
  void unless_plain(const char* name, T& value) {
    if (const auto found = fields_.find(name)) reader_.read(*found, value);
  }
  template <class T>
  void required(const char* name, std::shared_ptr<const T>& value) {
    reader_.read(fields_[name], value);
  }
  // null is read as 0.
  void finite_or_null(const char* name, double& value) {
    const JsonValue json = fields_[name];
    value = json.json().is_null() ? 0 : json.number();
  }
  // Calls `read` with each element of a list.
  template <class F>
  void list(const char* name, const F& read) {
    fields_[name].each(read);
  }
  // The same, if the field is there.
  template <class F>
  void list_if_any(const char* name, const F& read) {
    if (const auto found = fields_.find(name)) found->each(read);
  }

 private:
  JsonFields fields_;
  RecordReader<Format>& reader_;
};

template <class Format>
class RecordRowIn {
 public:
  RecordRowIn(const JsonValue& row, RecordReader<Format>& reader) : row_(row), reader_(reader) {}

  template <class... T>
  void operator()(T&... elements) {
    if (!row_.is_row(sizeof...(T))) return;
    std::size_t at = 0;
    (reader_.read(row_.at(at++), elements), ...);
  }

 private:
  const JsonValue& row_;
  RecordReader<Format>& reader_;
};

}  // namespace rubato::base
