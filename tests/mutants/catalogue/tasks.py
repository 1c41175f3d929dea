"""Bugs in the tasks that clients ask for: native/metadata/task_verbs.cc."""

from mutants.planted import Edit, Mutant, test

FILE = "native/metadata/task_verbs.cc"
SUITE = "metadata/test_tasks"

MUTANTS = (
    Mutant(
        "task-of-any-value",
        "A task goes on with whatever value its key has by now.",
        (
            Edit(
                FILE,
                '    if (table_.object(ref).put_id != task.put_id) return "the value was replaced by another one";\n',
                "",
            ),
        ),
        (test(SUITE, "test_another_put_ends_the_task_of_the_value_before"),),
    ),
    Mutant(
        "task-of-any-tenant",
        "Who guesses a task's id reads of another tenant's.",
        (
            Edit(
                FILE,
                "    if (task == nullptr || task->tenant != sessions_.find(command.prefix.session)->tenant) {",
                "    if (task == nullptr) {",
            ),
        ),
        (test(SUITE, "test_a_task_of_another_tenant_is_unknown"),),
    ),
    Mutant(
        "task-copies-only",
        "A move is made as a copy: its source stays.",
        (Edit(FILE, "{task.moves(), 0, task.id}", "{false, 0, task.id}"),),
        (test(SUITE, "test_a_move_ends_the_source_only_once_the_target_has_it"),),
    ),
    Mutant(
        "task-moves-what-is-elsewhere",
        "A move takes its bytes from any copy, and that copy goes instead of the one that was named.",
        (
            Edit(
                FILE,
                "        if (task.moves() && segment.id != task.source.segment) continue;\n",
                "",
            ),
            Edit(
                FILE,
                '        if (!is_on(table_.object(ref), *source)) return "no copy is on its source " + task.source.name;\n',
                "",
            ),
        ),
        (test(SUITE, "test_a_move_takes_the_copy_that_was_named"),),
    ),
    Mutant(
        "tasks-without-bound",
        "Any number of tasks may be under way.",
        (
            Edit(
                FILE,
                "    if (tasks_.unfinished_count() >= options_.tasks_pending_max) {",
                "    if (tasks_.unfinished_count() > (std::size_t{1} << 32)) {",
            ),
        ),
        (test(SUITE, "test_only_so_many_may_be_under_way"),),
    ),
    Mutant(
        "task-tries-for-ever",
        "A copy that fails again and again is tried again and again.",
        (
            Edit(
                FILE,
                "    if (task.attempts >= options_.task_attempts_max) {",
                "    if (task.attempts > 1'000'000) {",
            ),
        ),
        (test(SUITE, "test_a_copy_that_fails_is_tried_again_and_then_the_task_fails"),),
    ),
    Mutant(
        "first-task-blocks-the-line",
        "A task that waits stays at the front, and those behind it are never looked at.",
        (
            Edit(
                FILE,
                "        if (step == TaskStep::kWaits) tasks_.wait(task.id);\n",
                "        if (step == TaskStep::kWaits) {\n"
                "            tasks_.wait_first(task.id);\n"
                "            return true;\n"
                "        }\n",
            ),
            Edit(
                "native/metadata/tasks.h",
                "    void wait(wire::TaskId id) { waiting_.push_back(id); }\n",
                "    void wait(wire::TaskId id) { waiting_.push_back(id); }\n"
                "    void wait_first(wire::TaskId id) { waiting_.push_front(id); }\n",
            ),
        ),
        (test(SUITE, "test_many_tasks_that_wait_do_not_starve_the_one_that_can_go"),),
    ),
    Mutant(
        "copy-fails-and-its-task-waits-for-ever",
        "A task whose copy fails is not put back in line.",
        (
            Edit(
                "native/metadata/copy_verbs.cc",
                "    if (copy.task != 0) {\n        task_copy_failed(copy, why);\n    } else if",
                "    if (copy.task != 0) {\n    } else if",
            ),
        ),
        (test(SUITE, "test_a_copy_that_fails_is_tried_again_and_then_the_task_fails"),),
    ),
)
