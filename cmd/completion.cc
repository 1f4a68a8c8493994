// Completion scripts for shells. They are made from the description of the commands in CLI11, so
// they always match the program.
#include <fmt/format.h>
#include <memory>

#include "cmd/command_line.h"
#include "cmd/command_page.h"

namespace rubato::cmd {
namespace {

struct Flag {
  std::string name;  // with its dashes
  std::string help;
  bool takes_value = false;
};
struct Command {
  std::string path;  // "users add"; empty: the program
  std::string help;
  bool takes_jobs = false;
  std::vector<Flag> flags;
  std::vector<Command> commands;
};

// The first sentence, without characters that mean something to a shell.
std::string brief(const std::string& help) {
  std::string text = first_sentence(help);
  for (char& c : text) {
    if (std::string_view("'\"\\`$[]:").find(c) != std::string_view::npos) c = ' ';
  }
  return text;
}

Command read_tree(const CLI::App& app, const std::string& path) {
  Command command{path, brief(app.get_description()), false, {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    const bool takes_value = option->get_expected_max() > 0;
    if (option->get_positional() && option->get_type_name().find("JOB") != std::string::npos)
      command.takes_jobs = true;
    const auto add = [&](const std::string& name) {
      command.flags.push_back({name, brief(option->get_description()), takes_value});
    };
    for (const std::string& name : option->get_lnames()) add("--" + name);
    for (const std::string& name : option->get_snames()) add("-" + name);
  }
  const auto commands = app.get_subcommands([](const CLI::App* one) {
    return !one->get_name().empty() && !one->get_group().empty();  // without a group: hidden
  });
  command.commands.reserve(commands.size());
  for (const CLI::App* one : commands) {
    command.commands.push_back(
        read_tree(*one, path.empty() ? one->get_name() : path + " " + one->get_name()));
  }
  return command;
}

std::string last_word(const std::string& path) { return path.substr(path.rfind(' ') + 1); }

void flatten(const Command& command, std::vector<const Command*>& all) {
  all.push_back(&command);
  for (const Command& one : command.commands) flatten(one, all);
}

std::string words_of(const Command& command) {
  std::string words;
  for (const Command& one : command.commands) words += last_word(one.path) + " ";
  for (const Flag& flag : command.flags) words += flag.name + " ";
  while (words.ends_with(' ')) words.pop_back();
  return words;
}

// "status|logs": the commands that take jobs.
std::string job_takers(const std::vector<const Command*>& all) {
  std::string names;
  for (const Command* command : all) {
    if (command->takes_jobs)
      names += fmt::format("{}{}", names.empty() ? "" : "|", last_word(command->path));
  }
  return names;
}

// The patterns of a case statement: 'run' | 'users' | 'users add'.
std::string patterns(const std::vector<const Command*>& all) {
  std::string text;
  for (const Command* command : all) {
    if (command->path.empty()) continue;
    text += fmt::format("{}'{}'", text.empty() ? "" : " | ", command->path);
  }
  return text;
}

std::string bash_script(const Command& root) {
  std::vector<const Command*> all;
  flatten(root, all);
  std::string cases;
  for (const Command* command : all) {
    cases += fmt::format("    '{}') words='{}' ;;\n", command->path, words_of(*command));
  }
  return fmt::format(R"END(# Completion of rubato for bash: source <(rubato completion bash)
_rubato() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} path='' word words='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    [[ $word != -- ]] || return 0
    [[ $word != -* ]] || continue
    case "${{path:+$path }}$word" in
      {}) path="${{path:+$path }}$word" ;;
    esac
  done
  case $path in
{}  esac
  case $path in
    {}) [[ $current == -* ]] || words+=" $(rubato ls --all --parsable 2>/dev/null)" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _rubato rubato
)END",
                     patterns(all), cases, job_takers(all));
}

std::string zsh_script(const Command& root) {
  std::vector<const Command*> all;
  flatten(root, all);
  std::string cases;
  for (const Command* command : all) {
    std::string entries;
    for (const Command& one : command->commands) {
      entries += fmt::format(" '{}:{}'", last_word(one.path), one.help);
    }
    for (const Flag& flag : command->flags) {
      entries += fmt::format(" '{}:{}'", flag.name, flag.help);
    }
    cases += fmt::format("    '{}') entries=({}) ;;\n", command->path,
                         entries.empty() ? "" : entries.substr(1));
  }
  return fmt::format(R"END(#compdef rubato
# Completion of rubato for zsh: rubato completion zsh > "${{fpath[1]}}/_rubato"
_rubato() {{
  local seen='' word i
  local -a entries numbers
  for ((i = 2; i < CURRENT; i++)); do
    word=$words[i]
    [[ $word != -- ]] || {{ _default; return }}
    [[ $word != -* ]] || continue
    case "${{seen:+$seen }}$word" in
      {}) seen="${{seen:+$seen }}$word" ;;
    esac
  done
  case $seen in
{}  esac
  _describe -o rubato entries
  case $seen in
    {}) numbers=(${{(f)"$(rubato ls --all --parsable 2>/dev/null)"}}); compadd -a numbers ;;
    *) _files ;;
  esac
}}
if [[ $funcstack[1] == _rubato ]]; then _rubato "$@"; else compdef _rubato rubato; fi
)END",
                     patterns(all), cases, job_takers(all));
}

// fish wants a condition for each word: which commands stand before it on the command line.
std::string fish_condition(const Command& command) {
  if (command.path.empty()) return "__fish_use_subcommand";
  std::string condition;
  std::string_view rest = command.path;
  while (!rest.empty()) {
    const auto space = rest.find(' ');
    condition += fmt::format("{}__fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ",
                             rest.substr(0, space));
    rest.remove_prefix(space == std::string_view::npos ? rest.size() : space + 1);
  }
  if (command.commands.empty()) return condition;
  std::string deeper;
  for (const Command& one : command.commands) deeper += " " + last_word(one.path);
  return condition + "; and not __fish_seen_subcommand_from" + deeper;
}

std::string fish_script(const Command& root) {
  std::vector<const Command*> all;
  flatten(root, all);
  std::string script =
      "# Completion of rubato for fish: rubato completion fish > "
      "~/.config/fish/completions/rubato.fish\n";
  for (const Command* command : all) {
    const std::string condition = fish_condition(*command);
    for (const Command& one : command->commands) {
      script += fmt::format("complete -c rubato -f -n '{}' -a {} -d '{}'\n", condition,
                            last_word(one.path), one.help);
    }
    for (const Flag& flag : command->flags) {
      const bool is_long = flag.name.starts_with("--");
      script += fmt::format("complete -c rubato -n '{}' -{} {}{} -d '{}'\n", condition,
                            is_long ? "l" : "s", flag.name.substr(is_long ? 2 : 1),
                            flag.takes_value ? " -r" : "", flag.help);
    }
  }
  std::string takers = job_takers(all);
  for (char& c : takers) c = c == '|' ? ' ' : c;
  script += fmt::format(
      "complete -c rubato -f -n '__fish_seen_subcommand_from {}' -a '(rubato ls --all --parsable "
      "2>/dev/null)'\n",
      takers);
  return script;
}

}  // namespace

void add_completion(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "completion",
      "Print a script that completes commands, options and jobs when you press Tab in a shell. The "
      "script asks the daemon for the numbers of jobs; without a daemon it completes the rest.");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->type_name("SHELL")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  command->footer(
      "Examples:\n"
      "  source <(rubato completion bash)\n"
      "  rubato completion zsh > \"${fpath[1]}/_rubato\"\n"
      "  rubato completion fish > ~/.config/fish/completions/rubato.fish\n"
      "\n"
      "For bash, put the first line into ~/.bashrc.\n"
      "\n"
      "Exit code: 0 printed, 2 unknown shell.");
  command->callback([shell, &app, &chosen] {
    chosen = [shell, &app] {
      const Command root = read_tree(app, "");
      fmt::print("{}", *shell == "bash"  ? bash_script(root)
                       : *shell == "zsh" ? zsh_script(root)
                                         : fish_script(root));
      return 0;
    };
  });
}

}  // namespace rubato::cmd
