// Three graphs of one training step, made from the shapes of well-known networks: forward and
// backward operators, and the tensors between them. An operator and its backward one are a group,
// because both need the same weights and activations.
//
// The seconds are calculated, not measured: operations / a rate that such devices reach, plus the
// time of a launch. `python3 -m rubato.graph` measures a real model instead.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/graph/graph.h"

namespace rubato::graph {

// Like Inception-v3 on 32 images: modules of parallel branches.
[[nodiscard]] Graph inception();
// Translation by an LSTM of 4 layers on both sides with attention, 64 sentences of 20 words, and
// the words to predict in 8 parts. A layer is a group, because all its steps share their weights.
[[nodiscard]] Graph attention_rnn();
// 12 layers of width 1024 on 4 micro-batches of 2,048 words, which can go through the layers one
// behind the other. An operator of a layer is one group for all micro-batches.
[[nodiscard]] Graph transformer();

struct NamedGraph {
  std::string_view name;
  std::string_view what;
  Graph (*make)();
};
[[nodiscard]] const std::vector<NamedGraph>& sample_graphs();

}  // namespace rubato::graph
