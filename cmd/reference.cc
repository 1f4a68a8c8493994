// reference: prints docs/command-line.md's generated part, and writes the man pages. Hidden,
// because only the build and tools/check_reference need it.
#include <filesystem>
#include <fmt/format.h>
#include <memory>

#include "cmd/command_line.h"
#include "cmd/command_page.h"

namespace rubato::cmd {
namespace {

// Markdown would read these characters as its own.
std::string escaped(std::string_view text) {
  std::string out;
  bool code = false;
  for (const char c : text) {
    if (c == '`') code = !code;
    const bool special = c == '|' || (!code && (c == '*' || c == '<' || c == '['));
    if (special) out += '\\';
    out += c;
  }
  return out;
}

std::string table(std::string_view first, std::string_view second, const std::vector<Term>& terms) {
  std::string out = fmt::format("| {} | {} |\n|---|---|\n", first, second);
  for (const Term& term : terms)
    out += fmt::format("| `{}` | {} |\n", escaped(fmt::format("`{}", term.term)).substr(1),
                       escaped(term.help));
  return out + "\n";
}

std::string markdown(const std::vector<TextBlock>& blocks) {
  std::string out;
  for (const TextBlock& block : blocks) {
    for (const std::string& line : block.lines)
      out += block.literal ? fmt::format("    {}\n", line) : escaped(line) + "\n";
    out += "\n";
  }
  return out;
}

// The options of this heading are the same for all commands that have them. They are described
// once.
constexpr std::string_view kShared = "Connection";

void remember_shared(const CommandPage& page, std::vector<Term>& shared) {
  for (const TermGroup& group : page.options) {
    if (group.heading == kShared) shared = group.terms;
  }
}

void add_command(const CommandPage& page, std::vector<Term>& shared, std::string& out) {
  out += fmt::format("### {}\n\n    {}\n\n{}", page.name, page.usage, markdown(page.description));
  std::vector<Term> terms = page.arguments;
  bool connects = false;
  for (const TermGroup& group : page.options) {
    connects = connects || group.heading == kShared;
    if (group.heading == kShared) continue;
    for (const Term& term : group.terms) {
      if (term.term != "-h, --help") terms.push_back(term);
    }
  }
  const char* const first = page.arguments.empty() ? "option" : "argument or option";
  if (!terms.empty()) out += table(first, "meaning", terms);
  if (connects) out += "Also the [connection options](#connection-options).\n\n";
  out += markdown(page.footer);
  remember_shared(page, shared);
  for (const CommandSection& section : page.sections) {
    for (const CommandPage& command : section.commands) add_command(command, shared, out);
  }
}

int print_markdown(const CommandPage& program) {
  fmt::print("{}", markdown_text(program));
  return 0;
}

int write_man_pages(const CommandPage& program, const std::string& directory) {
  std::error_code problem;
  std::filesystem::create_directories(directory, problem);
  for (const ManPage& page : man_pages(program, RUBATO_VERSION)) {
    if (auto written = write_file(fmt::format("{}/{}", directory, page.file), page.text); !written)
      return bad_input(written.error());
  }
  return 0;
}

}  // namespace

const std::vector<Term>& environment_variables() {
  static const std::vector<Term> all = {
      {"RUBATO_SERVER", "the daemon's address, like `--server`"},
      {"RUBATO_TOKEN_FILE", "a file with the token for that address, like `--token-file`"},
      {"RUBATO_CA_FILE", "the authority that signed its certificate, like `--ca`"},
      {"RUBATO_STATE", "the daemon's state directory, like `--state`"},
      {"NO_COLOR", "if it is set and not empty, no colours are printed"},
  };
  return all;
}

const std::vector<Term>& exit_codes() {
  static const std::vector<Term> all = {
      {"0", "success; with `--wait`, the job has completed"},
      {"1", "the job has failed or was refused, or its state does not allow the command"},
      {"2", "bad input: an option, the job file, a key that was used for another job"},
      {"3", "there is no such job, node or user, or you may not see it"},
      {"4", "no daemon is running, or it cannot answer now (disk full, too many requests)"},
      {"5", "not allowed, or no valid token"},
      {"6", "`wait --timeout`: the time is over"},
  };
  return all;
}

std::string markdown_text(const CommandPage& program) {
  std::string list;
  std::string details;
  std::vector<Term> shared;
  for (const CommandSection& section : program.sections) {
    list += fmt::format("**{}**\n\n| command | what it does |\n|---|---|\n", section.heading);
    for (const CommandPage& command : section.commands) {
      std::string anchor = command.name;
      for (char& c : anchor) c = c == ' ' ? '-' : c;
      list += fmt::format("| [`{}`](#{}) | {} |\n", command.name, anchor, escaped(command.summary));
      add_command(command, shared, details);
    }
    list += "\n";
  }
  return fmt::format(
      "## All commands\n\n{}Every command also has `-h` and `--help`.\n\n"
      "{}## Connection options\n\n{}## Environment variables\n\n{}## Exit codes\n\n{}",
      list, details, table("option", "meaning", shared),
      table("variable", "meaning", environment_variables()),
      table("code", "meaning", exit_codes()));
}

void add_reference(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "reference", "Print the reference of all commands in Markdown, or write the man pages.");
  command->group("");  // not for people
  auto directory = std::make_shared<std::string>();
  command->add_option("--man", *directory, "write the man pages into this directory instead")
      ->type_name("DIR");
  command->callback([directory, &app, &chosen] {
    chosen = [directory, &app] {
      const CommandPage program = page_of(app, "rubato");
      return directory->empty() ? print_markdown(program) : write_man_pages(program, *directory);
    };
  });
}

}  // namespace rubato::cmd
