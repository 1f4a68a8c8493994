// Where a replica computes: the CPU, or one GPU of this host. Only the CPU is tested. The code for
// CUDA exists, but has not run on a machine with a GPU.
//
// A value.
#pragma once

#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "rubato/base/result.h"
#include "rubato/base/text.h"
#include "rubato/train/torch.h"

namespace rubato::train {

struct Device {
  torch::Device torch = torch::Device(torch::kCPU);

  [[nodiscard]] bool is_cpu() const { return torch.is_cpu(); }

  // "cpu", "cuda" (the first GPU) or "cuda:1".
  [[nodiscard]] static Result<Device> parse(std::string_view text) {
    if (text == "cpu") return Device{};
    constexpr std::string_view kCuda = "cuda";
    const bool names_cuda = text.substr(0, kCuda.size()) == kCuda &&
                            (text.size() == kCuda.size() || text[kCuda.size()] == ':');
    const auto index = names_cuda && text.size() > kCuda.size()
                           ? parse_integer(text.substr(kCuda.size() + 1))
                           : std::optional<long long>(0);
    if (!names_cuda || !index || *index < 0) {
      return Error{fmt::format("device {}: must be cpu, cuda or cuda:N", base::quoted(text))};
    }
    if (!torch::cuda::is_available()) {
      return Error{
          fmt::format("device {}: this libtorch was built without CUDA or sees no GPU; use "
                      "cpu, the only device that is tested",
                      base::quoted(text))};
    }
    const auto count = static_cast<long long>(torch::cuda::device_count());
    if (*index >= count) {
      return Error{fmt::format("device {}: this host has {} GPUs, numbered from 0",
                               base::quoted(text), count)};
    }
    return Device{torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(*index))};
  }
};

}  // namespace rubato::train
