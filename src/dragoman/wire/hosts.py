"""The environment variables in which users of cloud hosts keep region and project."""

__all__ = ["AWS_VARIABLES", "VERTEX_VARIABLES"]

AWS_VARIABLES: dict[str, tuple[str, ...]] = {"region": ("AWS_REGION", "AWS_DEFAULT_REGION")}
VERTEX_VARIABLES: dict[str, tuple[str, ...]] = {
    "region": ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"),
    "project": ("GOOGLE_CLOUD_PROJECT", "GOOGLE_PROJECT_ID"),
}
