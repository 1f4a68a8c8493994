// A computation graph: operators, what each computes and how much it sends to others. And the
// devices that it can be placed on. docs/graph.md describes the file.
//
// Pure: no clock, no I/O.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"

namespace rubato::graph {

using namespace rubato::base;

// A tensor that an operator takes from another one.
struct Input {
  std::size_t from = 0;  // operator
  double bytes = 0;
  friend bool operator==(const Input&, const Input&) = default;
};

struct Operator {
  std::string name;
  // By type of device. "" stands for every type that is not listed. An operator does not run on a
  // type for which there is nothing.
  std::map<std::string, double, std::less<>> seconds;
  double bytes = 0;   // of its result: what an input is, unless that says otherwise
  double memory = 0;  // bytes that it keeps on its device during the whole step
  std::vector<Input> inputs;
  std::size_t group = 0;

  // Negative if it does not run there.
  [[nodiscard]] double seconds_on(std::string_view type) const;
  friend bool operator==(const Operator&, const Operator&) = default;
};

struct Graph {
  std::string name;
  std::vector<Operator> operators;  // each after its inputs
  std::vector<std::string> groups;  // operators of one group are on one device
  friend bool operator==(const Graph&, const Graph&) = default;
};

[[nodiscard]] Result<Graph> parse_graph(std::string_view text, const std::string& source);
[[nodiscard]] std::string to_text(const Graph& graph);

struct Device {
  std::string name;  // "gpu 0"
  std::string type;
  double memory = 0;  // bytes
};

// Every device computes one operator at a time, and sends one tensor at a time to another device.
struct Machine {
  std::vector<Device> devices;
  double bytes_s = 12e9;
  double latency_s = 20e-6;  // of each tensor that is sent

  [[nodiscard]] double transfer_s(double bytes) const { return latency_s + bytes / bytes_s; }
};

inline constexpr std::size_t kMostDevices = 64;

// "gpu=4:16e9,cpu=1": four devices of type gpu with so many bytes of memory each, and one of type
// cpu with any amount.
[[nodiscard]] Result<std::vector<Device>> parse_devices(std::string_view text);

}  // namespace rubato::graph
