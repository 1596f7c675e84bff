"""Fast tests that may take longer than the limit, each with its reason; at most 20."""

EXCEPTIONS: dict[str, str] = {
    "tests/e2e/cli/test_cli_eval.py::test_json_is_a_verdict_and_nothing_else": "the command as users start it, cold",
    "tests/e2e/cli/test_installed.py::test_whatever_is_imported_is_declared": "reads the whole package",
    "tests/e2e/sim/test_child_processes.py::test_children_run_kernels_and_say_what_went_wrong": (
        "its child is a Python that imports torch and Triton"
    ),
    "tests/e2e/sim/test_interrupting.py::test_signals_stop_a_launch": "a real process, and a launch that is long",
    "tests/e2e/agents/test_mcp.py::test_an_agent_grades_simulates_and_looks_up": "a confined script starts cold",
    "tests/e2e/agents/test_mcp.py::test_a_script_of_an_agent_is_confined_and_stopped": "a confined script starts cold",
    "tests/e2e/serve/test_openapi.py::test_answers_are_as_the_document_says": "every operation, with drawn requests",
    "tests/e2e/sim/test_torch_compile.py::test_a_compiled_module_runs_inductors_kernels_and_gives_the_same_values": (
        "imports TorchInductor and compiles with it"
    ),
    "tests/unit/test_layering.py::test_imports_go_downward": "reads the whole package",
    "tests/unit/test_unreached.py::test_no_name_is_reached_by_tests_alone": "reads the whole package",
    "tests/sim/cost/test_cost_real_mutations.py::test_more_of_anything_never_makes_a_kernel_faster": (
        "kernels of up to 40 classes of programs are priced 850 times"
    ),
    "tests/unit/rl/test_trainer.py::test_a_batch_without_any_grade_is_skipped_and_said": (
        "learns until every answer is code: 2 s where the processor has AVX-512"
    ),
    "tests/unit/rl/test_trainer.py::test_a_crash_between_checkpoints_repeats_what_was_lost": (
        "trains one and a half times"
    ),
    "tests/unit/rl/test_trainer.py::test_reinforcement_learning_finds_what_pays": "the one test that learns for long",
    "tests/box/test_zygote.py::test_a_dead_zygote_takes_its_jobs_along_and_is_replaced": "a zygote starts cold",
    "tests/box/test_corpus.py::test_a_sample_of_the_corpus[experts_half_of_the_depth]": "graded twice, with data, too",
    "tests/box/test_hostile_runner.py::test_a_hostile_runner_never_makes_it_the_judges_fault": "dozens of evaluations",
    "tests/e2e/rl/test_distributed.py::test_the_first_rank_alone_reads_a_models_weights": "two ranks import FSDP",
    "tests/e2e/rl/test_served.py::test_a_run_samples_and_evaluates_with_its_server_alone": "a whole run on a server",
}
"""test -> reason"""
assert len(EXCEPTIONS) <= 20
