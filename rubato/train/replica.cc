#include "rubato/train/replica.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/text.h"
#include "rubato/elastic/kernels.h"

namespace rubato::train {

using torch::optim::OptimizerParamState;

// The state that one kind of optimizer keeps for a parameter, so that all kinds are sent in the
// same way.
struct OptimizerKind {
  struct Field {
    std::string name;
    std::function<torch::Tensor&(OptimizerParamState&)> tensor;
  };
  std::string name;
  const std::type_info* type = nullptr;
  std::function<std::unique_ptr<OptimizerParamState>()> make;
  std::vector<Field> fields;
  std::function<std::int64_t&(OptimizerParamState&)> step;  // empty: this optimizer counts no steps
};

namespace {

template <class State>
OptimizerKind::Field field(const char* name, torch::Tensor& (State::*member)()) {
  return {name, [member](OptimizerParamState& state) -> torch::Tensor& {
            return (static_cast<State&>(state).*member)();
          }};
}

template <class State>
std::function<std::int64_t&(OptimizerParamState&)> step_of() {
  return
      [](OptimizerParamState& state) -> std::int64_t& { return static_cast<State&>(state).step(); };
}

template <class Optimizer, class State>
OptimizerKind kind(const char* name, std::vector<OptimizerKind::Field> fields) {
  return {
      name, &typeid(Optimizer), [] { return std::make_unique<State>(); }, std::move(fields), {}};
}

template <class Optimizer, class State>
OptimizerKind counting_kind(const char* name, std::vector<OptimizerKind::Field> fields) {
  OptimizerKind result = kind<Optimizer, State>(name, std::move(fields));
  result.step = step_of<State>();
  return result;
}

const std::vector<OptimizerKind>& optimizer_kinds() {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace): ten names of it
  static const std::vector<OptimizerKind> kinds = {
      kind<SGD, SGDParamState>("sgd", {field("momentum_buffer", &SGDParamState::momentum_buffer)}),
      counting_kind<Adam, AdamParamState>(
          "adam", {field("exp_avg", &AdamParamState::exp_avg),
                   field("exp_avg_sq", &AdamParamState::exp_avg_sq),
                   field("max_exp_avg_sq", &AdamParamState::max_exp_avg_sq)}),
      counting_kind<AdamW, AdamWParamState>(
          "adamw", {field("exp_avg", &AdamWParamState::exp_avg),
                    field("exp_avg_sq", &AdamWParamState::exp_avg_sq),
                    field("max_exp_avg_sq", &AdamWParamState::max_exp_avg_sq)}),
      counting_kind<RMSprop, RMSpropParamState>(
          "rmsprop", {field("square_avg", &RMSpropParamState::square_avg),
                      field("momentum_buffer", &RMSpropParamState::momentum_buffer),
                      field("grad_avg", &RMSpropParamState::grad_avg)}),
      counting_kind<Adagrad, AdagradParamState>("adagrad", {field("sum", &AdagradParamState::sum)}),
  };
  return kinds;
}

Result<const OptimizerKind*> kind_of(const torch::optim::Optimizer& optimizer) {
  const std::type_info& type = typeid(optimizer);
  for (const OptimizerKind& kind : optimizer_kinds()) {
    if (*kind.type == type) return &kind;
  }
  if (type == typeid(torch::optim::LBFGS)) {
    return Error{
        "the optimizer is LBFGS, which steps all parameters at once and evaluates the loss itself: "
        "use "
        "SGD, Adam, AdamW, RMSprop or Adagrad"};
  }
  return Error{
      "the optimizer is of a kind whose state cannot be handed to a joining worker: use SGD, Adam, "
      "AdamW, RMSprop or Adagrad of torch itself, not a class derived from them"};
}

std::string type_name(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      return "float32";
    case torch::kFloat64:
      return "float64";
    case torch::kFloat16:
      return "float16";
    case torch::kBFloat16:
      return "bfloat16";
    case torch::kInt64:
      return "int64";
    case torch::kInt32:
      return "int32";
    case torch::kInt16:
      return "int16";
    case torch::kInt8:
      return "int8";
    case torch::kUInt8:
      return "uint8";
    case torch::kBool:
      return "bool";
    default:
      return c10::toString(tensor.scalar_type());
  }
}

torch::Tensor on_host(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU).contiguous();
}

std::span<const std::byte> bytes_of(const torch::Tensor& host) {
  return {static_cast<const std::byte*>(host.data_ptr()), host.nbytes()};
}

std::span<const float> floats_of(const torch::Tensor& host) {
  return {host.data_ptr<float>(), static_cast<std::size_t>(host.numel())};
}

// With memcpy, because bytes from the network may have any alignment.
void fill(torch::Tensor& tensor, std::span<const std::byte> bytes) {
  CHECK(bytes.size() == tensor.nbytes());
  if (bytes.empty()) return;
  if (tensor.is_cpu()) {
    std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
    return;
  }
  torch::Tensor host = torch::empty(tensor.sizes(), tensor.scalar_type());
  fill(host, bytes);
  tensor.copy_(host);
}

// Torch has no constant tensors, so this needs a cast. The users of the view only read.
torch::Tensor view_of(std::span<const float> floats, const torch::Tensor& model) {
  return torch::from_blob(const_cast<float*>(floats.data()), model.sizes(), torch::kFloat32);
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// The key under which torch keeps a parameter's state: its address, which libtorch 1 writes as
// text.
auto key_of(const torch::Tensor& tensor) {
#if TORCH_VERSION_MAJOR >= 2
  return static_cast<void*>(tensor.unsafeGetTensorImpl());
#else
  return c10::guts::to_string(tensor.unsafeGetTensorImpl());
#endif
}

// What the head of a chunk says about the optimizer: its steps, and the tensors that follow the
// value.
struct StateHead {
  bool exists = false;
  std::int64_t step = 0;
  std::vector<std::string> tensors;
};

std::string written(const StateHead& head) {
  if (!head.exists) return "{}";
  return Json{{"step", head.step}, {"tensors", head.tensors}}.dump();
}

Result<StateHead> read_head(std::string_view text, const std::string& source) {
  auto json = parse_json(text, source, {.bytes = 4096, .depth = 4});
  if (!json) return json.error();
  const Error wrong{fmt::format("{}: not the head of a chunk of optimizer state", source)};
  if (!json->is_object()) return wrong;
  if (json->empty()) return StateHead{};
  if (json->size() != 2 || !json->contains("step") || !json->contains("tensors")) return wrong;
  const Json& step = (*json)["step"];
  const Json& tensors = (*json)["tensors"];
  if (!step.is_number_integer() || !tensors.is_array()) return wrong;
  StateHead head{.exists = true, .step = step.get<std::int64_t>(), .tensors = {}};
  for (const Json& name : tensors) {
    if (!name.is_string()) return wrong;
    head.tensors.push_back(name.get<std::string>());
  }
  return head;
}

}  // namespace

// Runs after autograd has stored the gradient of one parameter.
class Replica::Hook : public torch::autograd::FunctionPostHook {
 public:
  Hook(Replica& replica, int trained) : replica_(replica), trained_(trained) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& /*inputs*/) override {
    replica_.gradient_arrived(trained_);
    return outputs;
  }

 private:
  Replica& replica_;
  int trained_;
};

Result<std::unique_ptr<Replica>> Replica::create(std::shared_ptr<torch::nn::Module> module,
                                                 torch::optim::Optimizer& optimizer, Device device,
                                                 std::size_t bucket_floats) {
  CHECK(module != nullptr && bucket_floats > 0);
  const auto kind = kind_of(optimizer);
  if (!kind) return kind.error();
  std::unique_ptr<Replica> replica(new Replica(std::move(module), optimizer, **kind, device));
  if (auto done = replica->adopt_parameters(); !done) return done.error();
  if (auto done = replica->adopt_buffers(); !done) return done.error();
  if (auto done = replica->compare_with_optimizer(); !done) return done.error();
  replica->lay_out(bucket_floats);
  replica->hook_gradients();
  return replica;
}

Replica::Replica(std::shared_ptr<torch::nn::Module> module, torch::optim::Optimizer& optimizer,
                 const OptimizerKind& kind, Device device)
    : module_(std::move(module)), optimizer_(optimizer), kind_(kind), device_(device) {
  if (!device_.is_cpu()) module_->to(device_.torch);
}

// The nodes may outlive this object in a graph that somebody keeps.
Replica::~Replica() {
  for (const Hooked& hooked : hooked_) hooked.node->del_post_hook(hooked.hook);
}

Result<void> Replica::adopt_parameters() {
  std::unordered_set<const void*> seen;  // a tied parameter has several names
  for (const auto& item : module_->named_parameters()) {
    const torch::Tensor& tensor = item.value();
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (tensor.scalar_type() != torch::kFloat32) {
      return Error{
          fmt::format("parameter {} is {}: gradients are added up in float32, so make every "
                      "parameter float32",
                      item.key(), type_name(tensor))};
    }
    if (tensor.layout() != torch::kStrided || !tensor.is_contiguous()) {
      return Error{fmt::format("parameter {} is not contiguous in memory: create it contiguous",
                               item.key())};
    }
    parameters_.push_back({item.key(), tensor, -1});
    if (!tensor.requires_grad()) continue;
    parameters_.back().trained = static_cast<int>(trained_.size());
    trained_.push_back(static_cast<int>(parameters_.size()) - 1);
  }
  return {};
}

Result<void> Replica::adopt_buffers() {
  std::unordered_set<const void*> seen;
  std::size_t offset = 1;  // after the loss
  for (const auto& item : module_->named_buffers()) {
    const torch::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (tensor.layout() != torch::kStrided || !tensor.is_contiguous() || tensor.is_complex()) {
      return Error{
          fmt::format("buffer {} is not a contiguous tensor of real numbers: only those can "
                      "be averaged over workers",
                      item.key())};
    }
    buffers_.push_back({item.key(), tensor, on_host(tensor).clone(), offset});
    offset += static_cast<std::size_t>(tensor.numel());
  }
  tail_.resize(offset);
  return {};
}

Result<void> Replica::compare_with_optimizer() const {
  std::unordered_set<const void*> stepped;
  std::unordered_set<const void*> owned;
  for (const auto& group : optimizer_.param_groups()) {
    for (const torch::Tensor& tensor : group.params()) stepped.insert(tensor.unsafeGetTensorImpl());
  }
  for (const Parameter& parameter : parameters_) {
    owned.insert(parameter.tensor.unsafeGetTensorImpl());
    if (parameter.trained < 0 || stepped.contains(parameter.tensor.unsafeGetTensorImpl())) continue;
    return Error{
        fmt::format("no group of the optimizer holds parameter {}: give it to the optimizer "
                    "or freeze it with set_requires_grad(false)",
                    parameter.name)};
  }
  for (std::size_t i = 0; i < optimizer_.param_groups().size(); ++i) {
    for (const torch::Tensor& tensor : optimizer_.param_groups()[i].params()) {
      if (owned.contains(tensor.unsafeGetTensorImpl())) continue;
      return Error{
          fmt::format("group {} of the optimizer holds a tensor of shape {} that is no "
                      "parameter of the module: register it with the module",
                      i, Json(tensor.sizes().vec()).dump())};
    }
  }
  return {};
}

void Replica::lay_out(std::size_t bucket_floats) {
  std::vector<std::size_t> counts;
  for (const int index : trained_) {
    counts.push_back(
        static_cast<std::size_t>(parameters_[static_cast<std::size_t>(index)].tensor.numel()));
  }
  bucket_floats_ = bucket_floats;
  accumulator_.emplace(elastic::make_layout(counts, tail_.size(), bucket_floats));
}

void Replica::hook_gradients() {
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const Parameter& parameter = parameters_[static_cast<std::size_t>(trained_[i])];
    auto node = torch::autograd::impl::grad_accumulator(parameter.tensor);
    const std::uintptr_t hook =
        node->add_post_hook(std::make_unique<Hook>(*this, static_cast<int>(i)));
    hooked_.push_back({std::move(node), hook});
  }
}

Json Replica::schema() const {
  Json parameters = Json::array();
  for (const Parameter& parameter : parameters_) {
    parameters.push_back({{"name", parameter.name},
                          {"shape", parameter.tensor.sizes().vec()},
                          {"dtype", type_name(parameter.tensor)},
                          {"trained", parameter.trained >= 0}});
  }
  Json buffers = Json::array();
  for (const Buffer& buffer : buffers_) {
    buffers.push_back({{"name", buffer.name},
                       {"shape", buffer.tensor.sizes().vec()},
                       {"dtype", type_name(buffer.tensor)}});
  }
  return {{"optimizer", kind_.name},
          {"bucket_floats", bucket_floats_},
          {"parameters", std::move(parameters)},
          {"buffers", std::move(buffers)}};
}

Result<LeafResult> Replica::leaf(const elastic::LeafStep& step, double weight,
                                 std::uint64_t random_seed,
                                 const std::function<torch::Tensor()>& loss, bool measure_noise,
                                 const std::function<void(int bucket)>& bucket_ready) {
  clear_gradients();
  restore_buffers();
  torch::manual_seed(random_seed);
  LeafResult result;
  try {
    const torch::Tensor value = loss();
    if (!value.defined() || value.numel() != 1 || !value.is_floating_point()) {
      return Error{
          "the loss function did not return a single floating-point number: reduce the "
          "losses of the samples to their mean"};
    }
    if (!value.requires_grad() && !trained_.empty()) {
      return Error{
          "the loss does not depend on any trained parameter: compute it from the module's "
          "output, with gradients enabled"};
    }
    result.loss = value.item<double>();
    problem_.clear();
    accumulator_->begin(step, measure_noise, bucket_ready);
    weight_ = static_cast<float>(weight);
    if (value.requires_grad()) value.backward();
  } catch (const c10::Error& error) {
    accumulator_->abandon();
    clear_gradients();
    return Error{fmt::format("leaf {}: torch says: {}", step.leaf,
                             first_line(error.what_without_backtrace()))};
  } catch (...) {
    accumulator_->abandon();  // an exception of the loss function goes to the caller
    clear_gradients();
    throw;
  }
  clear_gradients();
  if (!problem_.empty()) {
    accumulator_->abandon();
    return Error{problem_};
  }
  fill_tail(result.loss * weight, weight);
  const elastic::Measured measured = accumulator_->finish(tail_);
  result.gradient_sqr_norm = measured.sqr_norm;
  result.finite = measured.finite;
  return result;
}

void Replica::gradient_arrived(int trained) {
  if (!accumulator_->running() || !problem_.empty()) return;  // a pass that is not ours, or lost
  Parameter& parameter =
      parameters_[static_cast<std::size_t>(trained_[static_cast<std::size_t>(trained)])];
  torch::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) return;
  if (gradient.layout() != torch::kStrided) {
    problem_ = fmt::format(
        "the gradient of parameter {} is sparse, and sparse gradients cannot be added up in a "
        "fixed "
        "order here: create the layer with sparse(false)",
        parameter.name);
    return;
  }
  // Autograd sums all uses of a parameter before it stores the gradient, so it arrives once.
  const torch::Tensor host = on_host(gradient);
  accumulator_->add(trained, floats_of(host), weight_);
  gradient.reset();  // the next gradient uses its memory
}

void Replica::fill_tail(double weighted_loss, double weight) {
  tail_[0] = static_cast<float>(weighted_loss);
  for (const Buffer& buffer : buffers_) {
    const torch::Tensor after = on_host(buffer.tensor);
    // Integers are subtracted as integers, because a large one has no exact double.
    const torch::ScalarType wide =
        after.is_floating_point() ? torch::ScalarType::Double : torch::ScalarType::Long;
    const torch::Tensor move =
        ((after.to(wide) - buffer.start.to(wide)).to(torch::kFloat64) * weight).to(torch::kFloat32);
    elastic::copy(std::span(tail_).subspan(buffer.offset, static_cast<std::size_t>(move.numel())),
                  floats_of(move));
  }
}

void Replica::clear_gradients() {
  for (const int index : trained_) {
    parameters_[static_cast<std::size_t>(index)].tensor.mutable_grad().reset();
  }
}

void Replica::restore_buffers() {
  const torch::NoGradGuard no_gradients;
  for (Buffer& buffer : buffers_) buffer.tensor.copy_(buffer.start);
}

void Replica::apply(std::span<const float> reduced, double learning_rate_factor,
                    const std::vector<bool>& held) {
  CHECK(reduced.size() == layout().total);
  CHECK(held.empty() || held.size() == static_cast<std::size_t>(chunks()));
  clear_gradients();
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const auto index = static_cast<std::size_t>(trained_[i]);
    if (!held.empty() && !held[index]) continue;  // torch skips undefined gradients
    const elastic::Piece& piece = layout().parameters[i];
    torch::Tensor& parameter = parameters_[index].tensor;
    parameter.mutable_grad() =
        view_of(reduced.subspan(piece.offset, piece.count), parameter).to(device_.torch);
  }
  step_optimizer(learning_rate_factor);
  clear_gradients();
  if (held.empty() || held.back()) move_buffers(reduced.subspan(layout().buckets.back().offset));
}

void Replica::step_optimizer(double learning_rate_factor) {
  std::vector<double> rates;
  for (auto& group : optimizer_.param_groups()) {
    rates.push_back(group.options().get_lr());
    group.options().set_lr(rates.back() * learning_rate_factor);
  }
  optimizer_.step();
  for (std::size_t i = 0; i < rates.size(); ++i) {
    optimizer_.param_groups()[i].options().set_lr(rates[i]);
  }
}

void Replica::move_buffers(std::span<const float> tail) {
  const torch::NoGradGuard no_gradients;
  for (Buffer& buffer : buffers_) {
    const auto count = static_cast<std::size_t>(buffer.start.numel());
    const torch::Tensor move =
        view_of(tail.subspan(buffer.offset, count), buffer.start).to(torch::kFloat64);
    // A counter that every leaf increments by one changes by the sum of the weights. That is one,
    // apart from rounding.
    const torch::Tensor moved =
        buffer.start.is_floating_point()
            ? buffer.start.to(torch::kFloat64) + move
            : buffer.start.to(torch::kInt64) + move.round().to(torch::kInt64);
    buffer.start.copy_(moved);
    buffer.tensor.copy_(buffer.start);
  }
}

OptimizerParamState* Replica::state_of(const Parameter& parameter) {
  const auto found = optimizer_.state().find(key_of(parameter.tensor));
  return found == optimizer_.state().end() ? nullptr : found->second.get();
}

Chunk Replica::chunk(int index) {
  CHECK(0 <= index && index < chunks());
  Chunk chunk;
  if (index == chunks() - 1) {
    chunk.head = "{}";
    for (const Buffer& buffer : buffers_) chunk.tensors.push_back(buffer.start);
  } else {
    const Parameter& parameter = parameters_[static_cast<std::size_t>(index)];
    chunk.tensors.push_back(on_host(parameter.tensor));
    StateHead head;
    if (OptimizerParamState* state = state_of(parameter)) {
      head.exists = true;
      if (kind_.step) head.step = kind_.step(*state);
      for (const OptimizerKind::Field& field : kind_.fields) {
        const torch::Tensor& tensor = field.tensor(*state);
        if (!tensor.defined()) continue;
        head.tensors.push_back(field.name);
        chunk.tensors.push_back(on_host(tensor));
      }
    }
    chunk.head = written(head);
  }
  for (const torch::Tensor& tensor : chunk.tensors) chunk.body.push_back(bytes_of(tensor));
  return chunk;
}

Result<void> Replica::load_chunk(int index, std::string_view head,
                                 std::span<const std::byte> body) {
  if (index < 0 || index >= chunks()) {
    return Error{
        fmt::format("chunk {} does not exist: this model has {}, so the sender trains "
                    "another one",
                    index, chunks())};
  }
  if (index == chunks() - 1) return load_buffers(body);
  return load_parameter(parameters_[static_cast<std::size_t>(index)], head, body);
}

Result<void> Replica::load_parameter(Parameter& parameter, std::string_view head_text,
                                     std::span<const std::byte> body) {
  const std::string source = fmt::format("the chunk of parameter {}", parameter.name);
  const auto head = read_head(head_text, source);
  if (!head) return head.error();
  std::vector<const OptimizerKind::Field*> fields;
  for (const std::string& name : head->tensors) {
    const auto found = std::find_if(kind_.fields.begin(), kind_.fields.end(),
                                    [&](const auto& field) { return field.name == name; });
    if (found == kind_.fields.end() ||
        std::find(fields.begin(), fields.end(), &*found) != fields.end()) {
      return Error{
          fmt::format("{}: {} does not belong to the state of {}: both workers must use the "
                      "same optimizer",
                      source, base::quoted(name), kind_.name)};
    }
    fields.push_back(&*found);
  }
  const std::size_t bytes = parameter.tensor.nbytes();
  if (body.size() != bytes * (1 + fields.size())) {
    return Error{fmt::format("{}: {} bytes arrived, {} were expected for {} tensors", source,
                             body.size(), bytes * (1 + fields.size()), 1 + fields.size())};
  }

  const torch::NoGradGuard no_gradients;
  fill(parameter.tensor, body.first(bytes));
  if (!head->exists) {
    optimizer_.state().erase(key_of(parameter.tensor));
    return {};
  }
  std::unique_ptr<OptimizerParamState> state = kind_.make();
  if (kind_.step) kind_.step(*state) = head->step;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    torch::Tensor tensor = torch::empty_like(parameter.tensor).set_requires_grad(false);
    fill(tensor, body.subspan((1 + i) * bytes, bytes));
    fields[i]->tensor(*state) = std::move(tensor);
  }
  optimizer_.state()[key_of(parameter.tensor)] = std::move(state);
  return {};
}

Result<void> Replica::load_buffers(std::span<const std::byte> body) {
  std::size_t expected = 0;
  for (const Buffer& buffer : buffers_) expected += buffer.start.nbytes();
  if (body.size() != expected) {
    return Error{fmt::format("the chunk of the buffers: {} bytes arrived, {} were expected",
                             body.size(), expected)};
  }
  for (Buffer& buffer : buffers_) {
    fill(buffer.start, body.first(buffer.start.nbytes()));
    body = body.subspan(buffer.start.nbytes());
  }
  restore_buffers();
  return {};
}

std::uint64_t Replica::digest() {
  std::uint64_t digest = 0;
  for (int i = 0; i < chunks(); ++i) {
    const Chunk part = chunk(i);
    digest = elastic::hash(std::as_bytes(std::span(part.head)), digest);
    for (const std::span<const std::byte> bytes : part.body) digest = elastic::hash(bytes, digest);
  }
  return digest;
}

}  // namespace rubato::train
